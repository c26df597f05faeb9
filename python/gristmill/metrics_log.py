"""A run's figures in files: metrics.jsonl and TensorBoard events in the run's folder."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gristmill.tensorboard_log import TensorBoardLog

# What TensorBoard's and metrics.jsonl's step axis is.
STEP = "time/total_timesteps"


class JsonLines:
    """metrics.jsonl: one object a line. Every line reaches the file."""

    def __init__(self, folder: str | Path) -> None:
        """Raises OSError."""
        self._file = open(Path(folder) / "metrics.jsonl", "a", encoding="utf-8")  # noqa: SIM115

    def add(self, metrics: Mapping[str, float], step: int) -> None:
        """Raises OSError."""
        # JSON has no NaN.
        line = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        # In one piece: an interruption comes before or after the line, not within.
        self._file.write(json.dumps({"wall_time": time.time(), **line}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Raises OSError."""
        self._file.close()


class MetricsLog:
    """Appends to the files of a run; made at the first figures, so that it delays no start. One thread.

    A file that cannot be written (a full disk) costs its figures, never the run: `warn` is told once.
    """

    def __init__(self, run_dir: str, tensorboard: bool, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._files: dict[str, JsonLines | TensorBoardLog] = {}
        with self._giving_up("metrics.jsonl"):
            self._files["metrics.jsonl"] = JsonLines(run_dir)
        if tensorboard:
            self._files["TensorBoard's events"] = TensorBoardLog(run_dir)

    def write(self, metrics: Mapping[str, float]) -> None:
        """One interval's figures."""
        step = int(metrics.get(STEP, 0))
        for name, file in list(self._files.items()):
            with self._giving_up(name):
                file.add(metrics, step)

    def close(self) -> None:
        for name, file in list(self._files.items()):
            with self._giving_up(name):
                file.close()
        self._files.clear()

    @contextmanager
    def _giving_up(self, name: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ImportError) as error:
            self._files.pop(name, None)
            self._warn(f"{name} no longer written: {error}")
