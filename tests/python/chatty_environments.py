"""Environments that talk. Importing this module registers them with Gymnasium: in a run,
``env.id: gymnasium:chatty_environments:Chatty-v0`` with tests/python on PYTHONPATH."""

import logging
import os
import signal
import sys
import warnings

import gymnasium
from ticking_environment import Ticking

logger = logging.getLogger("chatty")


class Chatty(Ticking):
    """Says something at each process's first step, in every way there is; "flood": a line at every step, too;
    "kill": a flood amid which its process kills itself, leaving the file `once`; as "talk" where that is."""

    def __init__(self, kind="talk", once=None, render_mode=None):
        super().__init__(render_mode)
        self.kind, self.once = kind, once

    def tick(self, observation, reward):
        if Chatty.steps_in_process == 1:
            self._talk()
        killing = self.kind == "kill" and not os.path.exists(self.once)
        if self.kind == "flood" or killing:
            print("on and on", "x" * 4000)
        if killing and Chatty.steps_in_process == 1000:
            with open(self.once, "w"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        return observation, reward

    def _talk(self):
        print("printed,", "in a line")
        print("printed to stderr", file=sys.stderr)
        logger.debug("logged in detail")
        logger.info("logged")
        logger.error("logged, grave")
        try:
            raise ZeroDivisionError("the wheel came off")
        except ZeroDivisionError:
            logger.exception("logged with its traceback")
        warnings.warn("warned of", stacklevel=1)
        sys.stdout.write("begun, not ended")


gymnasium.register("Chatty-v0", entry_point=Chatty)
