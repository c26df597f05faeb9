"""A run's board as it is at one moment, and what happened between two."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gristmill import _core
from gristmill.profiling.histogram import BOUNDS, counts_of, quantile

WORKER_STAGES: tuple[str, ...] = tuple(_core.stages(learner=False))
LEARNER_STAGES: tuple[str, ...] = tuple(_core.stages(learner=True))


@dataclass
class Row:
    """One process of a run. index None: the learner."""

    index: int | None
    pid: int
    phase: str
    incarnation: int
    counters: dict[str, int]
    since_beat_s: float = 0.0
    mean_return: float = 0.0
    description: str = ""  # of a learner: empty, or JSON of a loop of the user's own
    histograms: dict[str, np.ndarray] = field(default_factory=dict)
    cpu_s: float = 0.0  # of all its threads
    delay_s: float = 0.0  # its main thread was ready and had no core

    @property
    def name(self) -> str:
        return "learner" if self.index is None else f"worker {self.index}"


@dataclass
class Snapshot:
    time_s: float  # monotonic
    learner: Row
    workers: list[Row]

    @property
    def rows(self) -> list[Row]:
        return [self.learner, *self.workers]

    @property
    def queue_size(self) -> int:
        """As last seen by anyone of the run."""
        latest = max(self.rows, key=lambda row: row.counters["queue_size_ns"])
        return latest.counters["queue_size"]

    @property
    def restarts(self) -> int:
        return sum(row.incarnation for row in self.workers)


def read(board: _core.RunBoard, histograms: bool = True) -> Snapshot:
    """Disturbs no one. Without histograms it takes some microseconds a row."""

    def row(index: int | None) -> Row:
        data = _core.learner_row(board) if index is None else board.row(index)
        made = Row(
            index,
            data["pid"],
            data["phase"],
            data["incarnation"],
            data["counters"],
            data["since_beat_s"],
            data.get("mean_return", 0.0),
            data["description"],
        )
        if histograms:
            read_histograms = _core.board_histograms(board, index)
            made.histograms = {name: counts_of(counts) for name, counts in read_histograms.items()}
            made.cpu_s, made.delay_s = _scheduled(made.pid)
        return made

    return Snapshot(time.monotonic(), row(None), [row(i) for i in range(len(board))])


@dataclass
class Stage:
    """One stage of one process, or of several together, within a window."""

    name: str
    seconds: float  # spent in it
    share: float  # of the processes' time
    count: int
    rate: float  # a second
    p50_s: float
    p99_s: float


@dataclass
class Process:
    """One process, or all workers together, within a window."""

    name: str
    seconds: float  # of all its processes
    stages: list[Stage]
    cpu: float  # cores in use
    delay: float  # share of its time in which it was ready and had no core

    def share(self, *names: str) -> float:
        return sum(stage.share for stage in self.stages if stage.name in names)


@dataclass
class Window:
    """What happened between two snapshots."""

    seconds: float
    learner: Process
    workers: Process
    frames_per_s: float  # taken by the learner
    acted_per_s: float  # environment steps of the workers
    trajectories_per_s: float
    bytes_per_s: float  # of trajectories, copied by workers
    gathered_share: float  # bytes that the learner copied, of those the workers did
    batches_per_s: float
    queue_size: float
    policy_lag: np.ndarray
    queue_fill: np.ndarray
    parameter_latency: np.ndarray
    restarts: int


def between(before: Snapshot, after: Snapshot) -> Window:
    seconds = max(after.time_s - before.time_s, 1e-9)
    pairs = list(zip(before.workers, after.workers, strict=True))
    own = [(before.learner, after.learner)]
    learner = _process("learner", own, LEARNER_STAGES, seconds)
    workers = _process("workers", pairs, WORKER_STAGES, seconds)
    copied = _sum(pairs, "copied_bytes")
    return Window(
        seconds=seconds,
        learner=learner,
        workers=workers,
        frames_per_s=_sum(own, "frames") / seconds,
        acted_per_s=_sum(pairs, "frames") / seconds,
        trajectories_per_s=_sum(own, "trajectories") / seconds,
        bytes_per_s=copied / seconds,
        gathered_share=_sum(own, "copied_bytes") / copied if copied else 0.0,
        batches_per_s=_sum(own, "updates") / seconds,
        queue_size=after.queue_size,
        policy_lag=_histogram(own, "policy_lag"),
        queue_fill=_histogram(own, "queue_fill"),
        parameter_latency=_histogram(pairs, "parameter_latency"),
        restarts=after.restarts - before.restarts,
    )


def _process(name: str, pairs: list[tuple[Row, Row]], names: Iterable[str], seconds: float) -> Process:
    whole = seconds * len(pairs)
    stages = []
    for stage in names:
        spent = _sum(pairs, f"{stage}_ns") * 1e-9
        counts = _histogram(pairs, stage)
        count = int(counts.sum())
        stages.append(
            Stage(
                stage,
                spent,
                spent / whole,
                count,
                count / seconds,
                quantile(counts, 0.5) * 1e-9,
                quantile(counts, 0.99) * 1e-9,
            )
        )
    cpu = sum(max(0.0, after.cpu_s - before.cpu_s) for before, after in pairs if before.pid == after.pid)
    delay = sum(
        max(0.0, after.delay_s - before.delay_s) for before, after in pairs if before.pid == after.pid
    )
    return Process(name, whole, stages, cpu / seconds, delay / whole)


def _sum(pairs: list[tuple[Row, Row]], counter: str) -> int:
    """A restarted process's counters begin at 0 again."""
    return sum(
        after.counters[counter] - (before.counters[counter] if before.incarnation == after.incarnation else 0)
        for before, after in pairs
    )


def _histogram(pairs: list[tuple[Row, Row]], name: str) -> np.ndarray:
    total = np.zeros(len(BOUNDS), np.int64)
    for before, after in pairs:
        if name in after.histograms:
            total += after.histograms[name].astype(np.int64)
            if name in before.histograms and before.incarnation == after.incarnation:
                total -= before.histograms[name].astype(np.int64)
    return np.maximum(total, 0)


def _scheduled(pid: int) -> tuple[float, float]:
    """Seconds of processor time of a process, and seconds that its main thread waited for a core."""
    if pid <= 0:
        return 0.0, 0.0
    cpu = delay = 0.0
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        delay = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        pass  # it has ended, or this kernel does not tell
    return cpu, delay


def each_process(before: Snapshot, after: Snapshot) -> list[Process]:
    """The learner, then every worker, each by itself."""
    seconds = max(after.time_s - before.time_s, 1e-9)
    found = []
    for old, new in zip(before.rows, after.rows, strict=True):
        names = LEARNER_STAGES if new.index is None else WORKER_STAGES
        found.append(_process(new.name, [(old, new)], names, seconds))
    return found
