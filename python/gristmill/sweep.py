"""gm.sweep: one configuration, many settings and seeds, a table.

    table = gm.sweep("configs/cartpole.yaml", {"learner.learning_rate": [1e-3, 3e-3]}, seeds=3, parallel=2)
    print(table.summary())

Each run is a process of its own (python -m gristmill.sweep_run) with its folder under DIR/NAME. What has
finished is not run again: call it once more after an interruption, or with more seeds or settings.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import re
import select
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gristmill import _core
from gristmill.config import Config

_logger = logging.getLogger("gristmill")
# A run writes its last checkpoint meanwhile.
_GRACE_S = 15.0
# In the rows, but too much for a screen.
_UNPRINTED = {"wall_s", "launch_to_first_step_s", "mean_length", "policy_lag/p50", "policy_lag/max"}
_UNPRINTED |= {"dropped_stale", "restarts", "version", "parameter_hash", "run_dir", "checkpoint", "episodes"}
Grid = Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]]


class SweepTable(list[dict[str, Any]]):
    """One row for each run: its settings by their dotted names, "seed", and the figures of gm.Result."""

    def __init__(self, rows: Iterable[dict[str, Any]] = (), settings: Iterable[str] = ()) -> None:
        super().__init__(rows)
        self.settings = list(settings)  # the columns that vary

    def to_pandas(self) -> Any:
        """As a pandas.DataFrame. Raises ImportError without pandas."""
        import pandas

        return pandas.DataFrame(list(self))

    def summary(self, figure: str = "mean_return") -> SweepTable:
        """One row for each setting, best first: the figure's mean, deviation and extremes over the seeds, how
        many runs have it, and how many failed."""
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in self:
            groups.setdefault(json.dumps([row[name] for name in self.settings]), []).append(row)
        rows = []
        for members in groups.values():
            values = [row[figure] for row in members if isinstance(row.get(figure), int | float)]
            rows.append(
                {name: members[0][name] for name in self.settings}
                | {
                    "runs": len(values),
                    "failed": sum(row["end"] == "failed" for row in members),
                    f"{figure}/mean": statistics.fmean(values) if values else None,
                    f"{figure}/std": statistics.stdev(values) if len(values) > 1 else 0.0,
                    f"{figure}/min": min(values, default=None),
                    f"{figure}/max": max(values, default=None),
                }
            )
        worst = float("-inf")
        rows.sort(
            key=lambda row: worst if row[f"{figure}/mean"] is None else row[f"{figure}/mean"], reverse=True
        )
        return SweepTable(rows, self.settings)

    def __str__(self) -> str:
        if not self:
            return "(empty)"
        columns = [c for c in dict.fromkeys(itertools.chain.from_iterable(self)) if c not in _UNPRINTED]
        columns = [c for c in columns if c != "error" or any(row.get(c) for row in self)]
        cells = [columns] + [[_shown(row.get(name)) for name in columns] for row in self]
        widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
        return "\n".join(
            "  ".join(f"{cell:>{w}}" for cell, w in zip(line, widths, strict=True)) for line in cells
        )


def sweep(
    config: Config | Mapping[str, Any] | str | os.PathLike[str],
    grid: Grid | None = None,
    *,
    seeds: int | Iterable[int] = 3,
    parallel: int = 1,
    name: str = "sweep",
    dir: str | os.PathLike[str] = "runs",
    on_result: Callable[[dict[str, Any]], None] | None = None,
) -> SweepTable:
    """Trains for every setting of the grid with every seed; returns the table when all have ended.

    config: as in gm.train. grid: {"learner.gamma": [0.98, 0.99], …}, whose product is run, or a list of
    settings, [{"learner.gamma": 0.98}, …]. seeds: how many, from 0, or which. parallel: runs at a time.
    on_result gets each row as its run ends.

    A run that fails is a row with end "failed" and its error; the others go on. It is tried again the next
    time, a run that was interrupted goes on from its checkpoint, one that has finished is taken from its
    folder. Ctrl-C ends the runs in an orderly way and comes out as KeyboardInterrupt. Raises ConfigError
    before anything has started, when any setting is wrong.
    """
    if parallel < 1:
        raise ValueError(f"parallel is {parallel}; expected at least 1")
    settings = _settings(grid)
    folder = Path(dir) / name
    wanted = list(range(seeds) if isinstance(seeds, int) else seeds)
    runs = [_Run.make(config, setting, seed, folder) for setting in settings for seed in wanted]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    columns = list(dict.fromkeys(itertools.chain.from_iterable(settings)))
    _Runner(runs, parallel, on_result).run()
    return SweepTable((run.row(columns) for run in runs), columns)


class _Run:
    """One run of a sweep and its files: NAME/ (the run's own), NAME.yaml, NAME.log, NAME.result.json."""

    def __init__(self, setting: Mapping[str, Any], seed: int, folder: Path, config: Config) -> None:
        self.setting, self.seed, self.config = setting, seed, config
        self.path = folder / config.run.name
        self.result: dict[str, Any] | None = None
        self.process: subprocess.Popen | None = None

    @classmethod
    def make(cls, base: Any, setting: Mapping[str, Any], seed: int, folder: Path) -> _Run:
        from gristmill.config import resolve

        config = Config.from_resolved(resolve(base, {**setting, "seed": seed}))
        config.run.dir = folder
        config.run.name = ""
        # Of everything that the run is made of: another base configuration is another run.
        digest = hashlib.sha256(json.dumps(config.to_dict(), sort_keys=True).encode()).hexdigest()[:10]
        words = "-".join(f"{key.rpartition('.')[2]}-{value}" for key, value in setting.items())
        config.run.name = f"{re.sub('[^A-Za-z0-9_-]+', '_', words)[:60]}-s{seed}-{digest}".lstrip("-")
        return cls(setting, seed, folder, config)

    def file(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def finished(self) -> bool:
        """Whether its result is there from before."""
        try:
            self.result = json.loads(self.file(".result.json").read_text())
        except (OSError, ValueError):
            return False
        return self.result["end"] in ("frames", "solved")

    def start(self) -> None:
        self.result = None
        self.file(".result.json").unlink(missing_ok=True)
        self.file(".yaml").write_text(self.config.to_yaml())
        command = [sys.executable, "-m", "gristmill.sweep_run", str(os.getpid())]
        command += [str(self.file(".yaml")), str(self.path), str(self.file(".result.json"))]
        with self.file(".log").open("ab") as log:
            # A session of its own: a terminal's Ctrl-C comes to us, and we pass it on once.
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def end(self) -> None:
        """Its process has ended: reads what it left."""
        assert self.process is not None
        code = self.process.wait()
        if not self.finished() and self.result is None:
            said = self.file(".log").read_text(errors="replace").strip().splitlines() or ["it said nothing"]
            error = f"ended with {code}: {said[-1]} (see {self.file('.log')})"
            self.result = {"end": "failed", "error": error}

    def row(self, columns: Iterable[str]) -> dict[str, Any]:
        values = {name: self.config.get(name) for name in columns}
        figures: dict[str, Any] = {}
        for key, value in (self.result or {}).items():
            nested = isinstance(value, Mapping)  # policy_lag
            figures.update({f"{key}/{name}": v for name, v in value.items()} if nested else {key: value})
        return {**values, "seed": self.seed, **figures}


class _Runner:
    """Keeps `parallel` of the runs going. Their processes are started by the thread that calls run(): they
    end with it."""

    def __init__(
        self, runs: list[_Run], parallel: int, on_result: Callable[[dict[str, Any]], None] | None
    ) -> None:
        self._waiting = [run for run in runs if not run.finished()]
        self._told = (len(runs) - len(self._waiting), len(runs))
        self._parallel = parallel
        self._on_result = on_result
        self._going: dict[int, _Run] = {}  # by pidfd

    def run(self) -> None:
        _logger.info("sweep: %d of %d runs have finished before", *self._told)
        try:
            while self._waiting or self._going:
                while self._waiting and len(self._going) < self._parallel:
                    run = self._waiting.pop(0)
                    run.start()
                    assert run.process is not None
                    self._going[os.pidfd_open(run.process.pid)] = run
                self._collect(0.5)
        except BaseException:
            self._interrupt()
            raise

    def _collect(self, timeout: float) -> None:
        for fd in select.select(list(self._going), [], [], timeout)[0]:
            run = self._going.pop(fd)
            os.close(fd)
            run.end()
            row = run.row(run.setting)
            _logger.info("sweep: %s: %s", run.path.name, run.result and run.result.get("end"))
            if self._on_result is not None:
                self._on_result(row)

    def _interrupt(self) -> None:
        self._on_result = None
        deadline = time.monotonic() + _GRACE_S
        for run in self._going.values():
            assert run.process is not None
            run.process.send_signal(signal.SIGINT)
        try:
            while self._going and time.monotonic() < deadline:
                self._collect(0.1)
        finally:
            for fd, run in self._going.items():
                assert run.process is not None
                run.process.kill()
                run.process.wait()
                os.close(fd)


def _settings(grid: Grid | None) -> list[dict[str, Any]]:
    if grid is None:
        return [{}]
    if not isinstance(grid, Mapping):
        return [dict(setting) for setting in grid]
    for key, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise _core.ConfigError(f"grid: {key} is {values!r}; expected a list of values")
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
