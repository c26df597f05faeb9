"""Runs a configuration for some seconds and watches its board."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gristmill import _core
from gristmill.profiling import board as boards
from gristmill.profiling.diagnosis import Diagnosis, diagnose
from gristmill.profiling.trace import Trace, record

if TYPE_CHECKING:
    from gristmill.top import Watched

_PARTS = 10
_SAMPLE_S = 0.1
_START_LIMIT_S = 120.0
_STOP_LIMIT_S = 20.0


class ProfileError(RuntimeError):
    """The run that was to be measured did not start, or ended; the message says what it said."""


@dataclass
class Sample:
    """Of the timeline."""

    time_s: float  # since measuring began
    frames_per_s: float
    queue_size: int
    space_wait: float  # share of the workers' time since the last sample
    batch_wait: float  # … of the learner's


@dataclass
class Profile:
    config: dict[str, Any]
    config_name: str
    cores: int
    seconds: float
    whole: boards.Window
    windows: list[boards.Window]
    samples: list[Sample]
    diagnosis: Diagnosis
    trace: Trace | None = None
    processes: list[boards.Process] = field(default_factory=list)  # each by itself, the learner first


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def profile(
    config: str,
    overrides: Sequence[str] = (),
    seconds: float = 5.0,
    warmup: float = 2.0,
    trace_s: float = 0.0,
    say: Callable[[str], None] = lambda text: None,
) -> Profile:
    """Starts `gristmill train` on the configuration in a folder that goes away, measures, and ends it.

    Raises ConfigError for a wrong configuration, ProfileError when the run fails.
    """
    resolved = _core.load_config(config, list(overrides))
    with running(config, overrides) as run:
        say(f"{config}: warming up for {warmup:g} s …")
        run.await_learning()
        run.sleep(warmup)
        return _measure(run, Path(config).name, resolved.values, seconds, trace_s, say)


def profile_run(
    watched: Watched,
    seconds: float = 5.0,
    trace_s: float = 0.0,
    say: Callable[[str], None] = lambda text: None,
) -> Profile:
    """Measures a run that goes on: one of `gristmill train`, or a loop over gm.Rollouts. It notices nothing
    but the spans that it traces for trace_s seconds.

    Raises ProfileError when it ends.
    """
    run = Attached(watched.board, watched.pid)
    run.await_learning()
    watched.look()
    return _measure(run, watched.name, watched.settings, seconds, trace_s, say)


def _measure(
    run: Attached,
    name: str,
    values: dict[str, Any],
    seconds: float,
    trace_s: float,
    say: Callable[[str], None],
) -> Profile:
    say(f"measuring for {seconds:g} s …")
    snapshots, samples = _watch(run, seconds)
    trace = None
    if trace_s > 0:
        say(f"tracing for {trace_s:g} s …")
        trace = record(run.tracing_board(), run.board, trace_s, run.check)
    windows = [boards.between(a, b) for a, b in itertools.pairwise(snapshots)]
    whole = boards.between(snapshots[0], snapshots[-1])
    return Profile(
        config=values,
        config_name=name,
        cores=usable_cores(),
        seconds=whole.seconds,
        whole=whole,
        windows=windows,
        samples=samples,
        diagnosis=diagnose(windows, values, usable_cores()),
        trace=trace,
        processes=boards.each_process(snapshots[0], snapshots[-1]),
    )


class Attached:
    """A run that goes on, seen by its board."""

    def __init__(self, board: _core.RunBoard, pid: int) -> None:
        self.board, self._pid = board, pid

    def tracing_board(self) -> _core.RunBoard:
        """The board, writable: tracing is switched on there."""
        return _core.RunBoard.attach(self.board.name, 1.0)

    def check(self) -> None:
        """Raises ProfileError when the run has ended."""
        if self.board.stop_requested or not Path(f"/proc/{self._pid}").exists():
            raise ProfileError("the run has ended")

    def sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, 0.2))

    def await_learning(self) -> None:
        """Until the first batch was taken and every worker is running."""
        limit = time.monotonic() + _START_LIMIT_S
        while True:
            self.check()
            snapshot = boards.read(self.board, histograms=False)
            started = all(row.counters["first_step_ns"] for row in snapshot.workers)
            if started and snapshot.learner.counters["updates"] > 0:
                return
            if time.monotonic() > limit:
                raise ProfileError(f"no batch after {_START_LIMIT_S:.0f} s")
            time.sleep(0.02)


class Running(Attached):
    """A run that was started for measuring, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], output: Path) -> None:
        self._process = process
        self._output = output
        super().__init__(_core.watch_board(self._await_board()), process.pid)

    def check(self) -> None:
        if self._process.poll() is not None:
            text = self._output.read_text(errors="replace").strip()
            raise ProfileError(f"the run ended by itself: {_last_words(text)}")

    def _await_board(self) -> str:
        limit = time.monotonic() + _START_LIMIT_S
        while time.monotonic() < limit:
            self.check()
            for segment in _core.list_segments():
                if segment.pid == self._process.pid and segment.name.endswith(".board"):
                    return segment.name
            time.sleep(0.01)
        raise ProfileError(f"the run made no board within {_START_LIMIT_S:.0f} s")


@contextmanager
def running(config: str, overrides: Sequence[str]) -> Iterator[Running]:
    """`gristmill train` until the block ends, without a limit of frames."""
    with tempfile.TemporaryDirectory(prefix="gristmill-profile-") as scratch:
        ours = [
            f"run.dir={scratch}",
            "run.name=profile",
            "train.total_frames=1000000000000000",
            "train.stop_at_return=0",
            "checkpoint.interval_s=0",
            "log.tensorboard=false",
        ]
        words = ["train", config, *overrides, *ours, "--json"]
        output = Path(scratch) / "output"
        command = [sys.executable, "-c", "from gristmill.cli import main; main()", *words]
        with output.open("w") as file:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, text=True, start_new_session=True
            )
        try:
            yield Running(process, output)
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _core.sweep_segments()


def _watch(run: Attached, seconds: float) -> tuple[list[boards.Snapshot], list[Sample]]:
    """Snapshots at the ends of the parts, with histograms; samples in between, without."""
    first = before = boards.read(run.board)
    snapshots, samples = [first], []
    while before.time_s < first.time_s + seconds:
        run.check()
        time.sleep(_SAMPLE_S)
        at_end = time.monotonic() >= first.time_s + seconds * len(snapshots) / _PARTS
        now = boards.read(run.board, histograms=at_end)
        window = boards.between(before, now)
        samples.append(
            Sample(
                now.time_s - first.time_s,
                window.frames_per_s,
                now.queue_size,
                window.workers.share("space_wait"),
                window.learner.share("batch_wait"),
            )
        )
        if at_end:
            snapshots.append(now)
        before = now
    if snapshots[-1] is not before:
        snapshots.append(boards.read(run.board))
    return snapshots, samples


def _last_words(text: str) -> str:
    lines = [line for line in text.splitlines() if not line.startswith("{")]
    return " | ".join(lines[-3:]) or text[-300:] or "it said nothing"
