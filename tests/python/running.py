"""Small, quick runs of the command line and of gm.train, for tests."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import gristmill as gm

# Solves nothing, but goes through every part in a second.
SMALL = {
    "train": {"total_frames": 4096},
    "workers": {"count": 2, "envs_per_worker": 8, "unroll": 16},
    "learner": {"batch_trajectories": 16, "minibatch_trajectories": 8},
    "queue": {"capacity": 32},
    "policy": {"hidden_sizes": [16]},
    "log": {"interval_s": 0.1},
}
# Of a run on fault_environments, unless its test says otherwise.
FAULTY_FRAMES = 20_000
# Goes on until it is stopped.
ENDLESS = {**SMALL, "train": {"total_frames": 10**12}}


def write_config(folder: Path, values: dict, name: str = "run.yaml") -> Path:
    """A config file whose run lies under `folder`."""
    config = gm.Config(values)
    config.run.dir = folder / "runs"
    path = folder / name
    path.write_text(config.to_yaml())
    return path


def command(*words) -> list[str]:
    return [sys.executable, "-m", "gristmill.cli", *map(str, words)]


def run(*words, **options) -> subprocess.CompletedProcess:
    """The command line, to its end."""
    return subprocess.run(
        command(*words), capture_output=True, text=True, timeout=90, stdin=subprocess.DEVNULL, **options
    )


def last_json(text: str) -> dict:
    return json.loads(text.splitlines()[-1])


def start(*words, **options) -> subprocess.Popen:
    """The command line in a process group of its own."""
    return subprocess.Popen(
        command(*words),
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def end(process: subprocess.Popen) -> None:
    """For clean-up: ends what a failed test left running."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def workers_of(pid: int) -> list[int]:
    """Living rollout workers whose parent is `pid`."""
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if _is_worker_of(folder, pid)]


def alive(pid: int) -> bool:
    """Whether it runs; a zombie that its new parent has not noticed yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def await_until(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    """A watchdog, not a measurement."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def await_figures(process: subprocess.Popen, count: int = 1) -> None:
    """Until a run of `train --json` has told its figures `count` times."""
    while count > 0:
        line = process.stderr.readline()
        assert line, process.wait(30)
        count -= "frames/s" in line


def _is_worker_of(folder: Path, pid: int) -> bool:
    try:
        state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        return int(parent) == pid and state != "Z" and b"--board" in (folder / "cmdline").read_bytes()
    except OSError:
        return False  # it ended meanwhile


def segments_of(pid: int) -> list[str]:
    """A run's parts only: other tests of this process may have queues and boxes of their own."""
    names = (segment.name for segment in gm.list_segments() if segment.pid == pid)
    return [name for name in names if name.rsplit(".", 1)[1] in ("board", "queue", "box", "log")]


def read_events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every scalar of a folder's event files, as TensorBoard reads them: (step, value)."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }
