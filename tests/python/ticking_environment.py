"""The frame of the environments that go wrong or talk: one state, episodes of 20 steps, steps counted."""

import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Ticking(gymnasium.Env):
    """Observes how far its episode is. `steps_in_process` counts the steps of all its copies in this process;
    a subclass does in `tick`, before each of them is answered, what it is there for."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)
    steps_in_process = 0

    def __init__(self, render_mode=None):
        self.t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.t += 1
        type(self).steps_in_process += 1
        observation, reward = self.tick(np.full(3, self.t / 20, np.float32), 1.0)
        return observation, reward, False, self.t >= 20, {}

    def tick(self, observation, reward):
        return observation, reward


def is_the_one(once):
    """Whether this process is the one to go wrong: of all that ask, the one that gets to create the file
    `once`, which holds the time from then on. Without a file each is."""
    if once is None:
        return True
    try:
        with open(once, "x") as file:
            file.write(str(time.time()))
    except FileExistsError:
        return False
    return True
