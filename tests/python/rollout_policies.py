"""Policies and environments for the tests of gm.Rollouts, which workers import by name."""

import os
import signal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from ticking_environment import is_the_one
from torch import nn


class Constant(nn.Module):
    """Acts 0 always, and tells its only parameter as its value."""

    def __init__(self):
        super().__init__()
        self.level = nn.Parameter(torch.zeros(1))

    def act(self, obs, state):
        rows = len(obs)
        return {
            "actions": torch.zeros(rows, dtype=torch.int64),
            "log_probs": torch.zeros(rows),
            "values": self.level.expand(rows),
            "double": torch.stack([self.level.expand(rows), 2 * self.level.expand(rows)], 1),
        }


class Counting(nn.Module):
    """Recurrent: its state counts the steps of each episode."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(1, 1)

    def initial_state(self, count):
        return {"steps": torch.zeros(count, 1), "kind": torch.ones(count, 2, dtype=torch.int64)}

    def act(self, obs, state):
        following = {"steps": state["steps"] + 1, "kind": state["kind"]}
        return {"actions": torch.zeros(len(obs), dtype=torch.int64), "seen": state["steps"][:, 0]}, following


class Scripted:
    """No module, no parameters: whole numbers by NumPy."""

    def act(self, obs, state):
        return np.ones(len(obs), np.int64)


class Refusing:
    """Breaks the contract in the way that it is told to."""

    def __init__(self, how):
        self.how = how

    def act(self, obs, state):
        if self.how == "raise":
            raise ZeroDivisionError("the policy came off")
        if self.how == "range":
            return torch.full((len(obs),), 7)
        if self.how == "shape":
            return torch.zeros(len(obs), 3, dtype=torch.int64)
        if self.how == "name":
            return {"actions": torch.zeros(len(obs), dtype=torch.int64), "rewards": torch.zeros(len(obs))}
        return {"logits": torch.zeros(len(obs), 2)}


class Counter(gymnasium.Env):
    """Observes [its step, its number]; an episode ends after `length` steps, terminated or cut."""

    observation_space = spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = spaces.Discrete(2)
    made = 0

    def __init__(self, length=5, cut=False, fault=None, once=None):
        self.length, self.cut, self.fault, self.once = length, cut, fault, once
        self.number = Counter.made
        Counter.made += 1
        self.t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.array([0, self.number], np.float32), {}

    def step(self, action):
        self.t += 1
        if self.fault and self.t == self.length - 1 and is_the_one(self.once):
            if self.fault == "raise":
                raise ZeroDivisionError("the wheel came off")
            if self.fault == "nan":
                return np.full(2, np.nan, np.float32), 0.0, False, False, {}
            os.kill(os.getpid(), signal.SIGKILL)
        over = self.t >= self.length
        observation = np.array([self.t, self.number], np.float32)
        return observation, float(self.t), over and not self.cut, over and self.cut, {}


def counter(**options):
    return Counter(**options)


def broken():
    raise RuntimeError("no such wheel")
