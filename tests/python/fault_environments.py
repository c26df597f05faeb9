"""Environments that go wrong on purpose. Importing this module registers them with Gymnasium: in a run,
``env.id: gymnasium:fault_environments:Fault-v0`` with tests/python on PYTHONPATH."""

import ctypes
import os
import signal
import time

import gymnasium
import numpy as np
from ticking_environment import Ticking, is_the_one


class Fault(Ticking):
    """Goes wrong at its step `at`, counted over all its episodes and copies in this process: kind is "raise",
    "exit", "kill", "segfault", "nan_observation", "inf_reward", "hang", "hang_in_c", "shape" or "none". With
    `once`, the name of a file: only the process that gets to create that file goes wrong, so that a restarted
    worker does not; it writes the time into it."""

    def __init__(self, kind="none", at=1_000, once=None, render_mode=None):
        super().__init__(render_mode)
        self.kind, self.at, self.once = kind, int(at), once

    def tick(self, observation, reward):
        if Fault.steps_in_process != self.at or not is_the_one(self.once):
            return observation, reward
        if self.kind == "raise":
            raise ZeroDivisionError("the wheel came off")
        if self.kind == "exit":
            os._exit(3)
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.kind == "hang":
            while True:
                time.sleep(60)
        if self.kind == "hang_in_c":
            libc = ctypes.PyDLL(None)  # which keeps the GIL
            while True:
                libc.sleep(60)
        if self.kind == "nan_observation":
            observation[1] = np.nan
        if self.kind == "inf_reward":
            reward = float("inf")
        if self.kind == "shape":
            observation = np.zeros(4, np.float32)
        return observation, reward


gymnasium.register("Fault-v0", entry_point=Fault)
