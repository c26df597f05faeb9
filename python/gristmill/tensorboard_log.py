"""A run's figures for TensorBoard, written by TensorBoard's own writer on a thread of its own."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Mapping
from pathlib import Path

# Importing the writer takes a core for a fifth of a second: a run that is over in two seconds would feel
# it. Until then, and at most until the end, figures wait in memory (metrics.jsonl has them at once).
PATIENCE_S = 5.0


class TensorBoardLog:
    """Finite scalars of one launch, in one event file. add() and close() are for one thread; only close()
    waits for the disk."""

    def __init__(self, folder: str | Path, patience_s: float = PATIENCE_S) -> None:
        self._folder = str(folder)
        self._patience_s = patience_s
        self._records: queue.SimpleQueue[tuple[float, int, Mapping[str, float]] | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="tensorboard", daemon=True)
        self._thread.start()

    def add(self, scalars: Mapping[str, float], step: int) -> None:
        """One value of each tag. Raises the OSError or ImportError that an earlier one met."""
        self._records.put((time.time(), step, scalars))
        self._raise()

    def close(self) -> None:
        """Writes what is left. Raises as add() does."""
        self._records.put(None)
        self._closing.set()
        self._thread.join()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _run(self) -> None:
        self._closing.wait(self._patience_s)
        try:
            self._write_all()
        except (OSError, ImportError) as error:
            self._error = error

    def _write_all(self) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        writer = EventFileWriter(self._folder)
        try:
            while (record := self._records.get()) is not None:
                wall_time, step, scalars = record
                values = [
                    Summary.Value(tag=tag, simple_value=value)
                    for tag, value in scalars.items()
                    if math.isfinite(value)
                ]
                writer.add_event(Event(wall_time=wall_time, step=step, summary=Summary(value=values)))
                if self._records.empty():
                    writer.flush()
        finally:
            writer.close()
