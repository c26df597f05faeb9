"""What a worker in Python logs, warns and prints, on its way to the run's log (rollout/run_log.h).

The records go into a queue that drops its oldest when it is full: nothing here ever waits.
"""

from __future__ import annotations

import atexit
import io
import logging
import queue
import struct
import sys
import threading
import time
from typing import TextIO

from gristmill._core import SegmentError
from gristmill.queue import Queue

_HEAD = struct.Struct("=iid")  # worker, level, time: encode_record() in rollout/run_log.cc
_LONGEST = 16 * 1024  # bytes of text: kLongestRecord
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def install(board: str, worker: int, level: str) -> None:
    """From now on logging's root logger, warnings, sys.stdout (as info) and sys.stderr (as warnings), line by
    line, go to the log of the run whose board this is. "off", or a run without a log: leaves all as it is.

    What C libraries write to the descriptors 1 and 2 goes to the terminal as before.
    """
    if level == "off":
        return
    try:
        log = WorkerLog(board.rpartition(".")[0] + ".log", worker, _LEVELS[level])
    except SegmentError:
        return
    root = logging.getLogger()
    root.addHandler(_Handler(log))
    # The least severe of what is wanted; loggers with a level of their own keep it.
    root.setLevel(log.lowest)
    logging.captureWarnings(True)
    sys.stdout = _Lines(log, logging.INFO, sys.stdout)
    sys.stderr = _Lines(log, logging.WARNING, sys.stderr)


class WorkerLog:
    """The worker's side. Any thread."""

    def __init__(self, name: str, worker: int, lowest: int) -> None:
        """Raises SegmentError when there is no such log."""
        self.lowest = lowest
        self._worker = worker
        self._queue = Queue.attach(name, serializer="raw", timeout=1)

    def say(self, level: int, text: str) -> None:
        if level < self.lowest:
            return
        data = text.encode("utf-8", "replace")[:_LONGEST]
        try:
            self._queue.put_nowait(_HEAD.pack(self._worker, level, time.time()) + data)
        except (queue.Full, ValueError, RuntimeError):
            # Another worker is stopped inside the queue's lock, or the run has ended.
            pass


class _Handler(logging.Handler):
    def __init__(self, log: WorkerLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            # The warning's own text names its place and its class.
            self._log.say(
                max(record.levelno, 0), text if record.name == "py.warnings" else f"{record.name}: {text}"
            )
        except Exception:
            self.handleError(record)


class _Lines(io.TextIOBase):
    """A text stream whose lines are records. What is not ended by a line break is kept until it is."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, log: WorkerLog, level: int, replaced: TextIO | None) -> None:
        self._log = log
        self._level = level
        self._replaced = replaced
        self._begun = ""
        self._lock = threading.RLock()  # a signal's handler may print, too
        atexit.register(self._end)

    def write(self, text: str) -> int:
        with self._lock:
            # A bar that rewrites itself ends its lines with \r.
            *lines, self._begun = (self._begun + text).replace("\r", "\n").split("\n")
            if len(self._begun) > _LONGEST:
                lines.append(self._begun)
                self._begun = ""
        for line in lines:
            if line.strip():
                self._log.say(self._level, line)
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """The real one, for child processes."""
        if self._replaced is None:
            raise io.UnsupportedOperation("fileno")
        return self._replaced.fileno()

    @property
    def buffer(self):
        """The real one: bytes are not lines."""
        return self._replaced.buffer

    def _end(self) -> None:
        self.write("\n")
