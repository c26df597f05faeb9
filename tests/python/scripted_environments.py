"""Gymnasium environments that do as their actions say, and the arrays that a vector of them writes into."""

import gymnasium
import numpy as np
from gymnasium import spaces

from gristmill.gymnasium_env import GymnasiumVector


class Scripted(gymnasium.Env):
    """Observes (episode, step); ends as its action says: 0 goes on, 1 terminates, 2 truncates, 3 both."""

    def __init__(self, observation_space=None, action_space=None, observe=None):
        self.observation_space = observation_space or spaces.Box(0, 1_000, (2,), np.float32)
        self.action_space = action_space or spaces.Discrete(4)
        self.observe = observe or (lambda env: self._shared())
        self.array = np.zeros(2, np.float32)
        self.episode = self.t = 0
        self.actions, self.seeds, self.closed = [], [], False

    def _shared(self):
        # The same array each time, as some environments do.
        self.array[:] = self.episode, self.t
        return self.array

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode += 1
        self.t = 0
        return self.observe(self), {}

    def step(self, action):
        self.actions.append(action)
        self.t += 1
        code = int(action) if np.ndim(action) == 0 else 0
        return self.observe(self), 10.0 * self.t, bool(code & 1), bool(code & 2), {}

    def close(self):
        self.closed = True


gymnasium.register("Scripted-v0", entry_point=Scripted)


class Raising(Scripted):
    def __init__(self, at=3, in_reset=False):
        super().__init__()
        self.at, self.in_reset = at, in_reset

    def reset(self, *, seed=None, options=None):
        if self.in_reset and self.episode == 1:
            raise KeyError("no more levels")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        if action == 0 and self.t == self.at:
            raise ZeroDivisionError("the wheel came off")
        return super().step(action)


gymnasium.register("Raising-v0", entry_point=Raising)


class Buffers:
    """A vector's arrays, rows lying apart inside larger ones, as in a trajectory buffer."""

    def __init__(self, vector, fill=-77):
        count = len(vector)
        shape = vector.observation_shape
        fill = fill if vector.observation_dtype == np.float32 else 77
        self.whole = np.full((count, 3, *shape), fill, vector.observation_dtype)
        self.observations = self.whole[:, 1]
        self.rewards = np.full((count, 3), -77, np.float32)[:, 1]
        self.terminated = np.ones((count, 3), bool)[:, 1]
        self.truncated = np.ones((count, 3), bool)[:, 1]
        self.finals = np.full((count, *shape), fill, vector.observation_dtype)

    def step(self, vector, actions):
        actions = np.asarray(actions, vector.action_dtype)
        vector.step(actions, self.observations, self.rewards, self.terminated, self.truncated, self.finals)


def scripted(count=3, **kwargs):
    vector = GymnasiumVector("Scripted-v0", kwargs, count)
    buffers = Buffers(vector)
    vector.reset(buffers.observations)
    return vector, buffers
