"""What the workers of gm.Rollouts log, warn and print, told in the process of the loop."""

from __future__ import annotations

import logging
import sys

from gristmill import _core

_logger = logging.getLogger("gristmill")


class WorkerLines:
    """The run's log (worker_log.py) at the loop's end. One thread. Raises SegmentError."""

    def __init__(self, board: str) -> None:
        self._logs = _core.WorkerLogs(board)
        self._told_dropped = 0

    def tell(self) -> None:
        """What was said since the last call: to the logger "gristmill", or, where it does not take a line
        that is no warning, to sys.stdout: nobody prints in order not to see it."""
        for worker, level, text in self._logs.take():
            if level < logging.WARNING and not _logger.isEnabledFor(level):
                print(f"worker {worker}: {text}", file=sys.stdout, flush=True)
            else:
                _logger.log(level, "worker %d: %s", worker, text)

    def finish(self) -> None:
        """The rest, when nobody writes any more."""
        for _ in range(32):  # as much as fits into a full log, twice over
            self.tell()
        if (dropped := self._logs.dropped) > 0:
            _logger.warning("%d lines that workers said were dropped: they came too fast", dropped)

    def unlink(self) -> None:
        self._logs.unlink()
