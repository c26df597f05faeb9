"""A run's figures in files: metrics.jsonl and TensorBoard events in the run's folder."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from gristmill.tensorboard_events import EventFile

# What TensorBoard's and metrics.jsonl's step axis is.
STEP = "time/total_timesteps"


class MetricsLog:
    """Appends to the files of a run; made at the first figures, so that it delays no start. One thread.

    A file that cannot be written (a full disk) costs the figures, never the run: `warn` is told once.
    """

    def __init__(self, run_dir: str, tensorboard: bool, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._lines = None
        self._events = None
        try:
            self._lines = open(Path(run_dir) / "metrics.jsonl", "a", encoding="utf-8")  # noqa: SIM115
            if tensorboard:
                self._events = EventFile(run_dir)
        except OSError as error:
            self._give_up(error)

    def write(self, metrics: Mapping[str, float]) -> None:
        """One interval's figures."""
        if self._lines is None:
            return
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        step = int(finite.get(STEP, 0))
        # JSON has no NaN.
        line = {name: finite.get(name) for name in metrics}
        try:
            json.dump({"wall_time": time.time(), **line}, self._lines)
            self._lines.write("\n")
            self._lines.flush()
            if self._events is not None:
                self._events.add_scalars(finite, step)
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        for file in (self._lines, self._events):
            if file is not None:
                try:
                    file.close()
                except OSError as error:
                    self._warn(f"metrics are incomplete: {error}")
        self._lines = self._events = None

    def _give_up(self, error: OSError) -> None:
        self._lines = self._events = None
        self._warn(f"metrics are no longer written: {error}")
