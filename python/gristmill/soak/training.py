"""The part over whole training runs: workers and learners killed and stopped while CartPole is learnt.

A round is one run: it is launched, its workers and its learner are killed -9 or stopped at random, it is
resumed (or begun again, when the learner died before its first checkpoint), and at last left alone until
it has solved its task. Then no process and no shared memory of it may be left.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gristmill as gm
from gristmill.bench.train import gristmill_command
from gristmill.soak.findings import PartResult

SOLVED = 475.0
# A run that is left alone solves its task in a second or two; one on a busy machine in some more.
_LIMIT_S = 120.0
# So many violations say what there is to say.
_ENOUGH = 10
_CONFIG = {
    "env": {"id": "cartpole"},
    "workers": {
        "count": 2,
        "envs_per_worker": 32,
        "unroll": 32,
        "max_restarts": 1_000_000,
        "restart_backoff_s": 0.02,
    },
    "policy": {"hidden_sizes": [64, 64], "activation": "tanh", "shared_trunk": False},
    "queue": {"capacity": 128},
    "learner": {
        "algorithm": "appo",
        "learning_rate": 2.0e-3,
        "batch_trajectories": 64,
        "minibatch_trajectories": 8,
        "epochs": 3,
        "gamma": 0.98,
        "gae_lambda": 0.9,
        "clip_range": 0.2,
        "value_coefficient": 0.5,
        "max_grad_norm": 0.5,
    },
    "train": {"total_frames": 200_000_000, "stop_at_return": SOLVED},
    "checkpoint": {"interval_s": 0.2},
    "log": {"interval_s": 0.5},
}


def _stat(pid: int) -> list[str]:
    """/proc's fields from the state on; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _alive(pid: int) -> bool:
    stat = _stat(pid)
    return bool(stat) and stat[0] not in "ZX"


def workers_of(pid: int) -> list[int]:
    """Living rollout workers whose parent is `pid`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        stat = _stat(int(folder.name))
        if not stat or stat[0] in "ZX" or int(stat[1]) != pid:
            continue
        try:
            if b"--board" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def _signal(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


class _Round:
    """One run, from its first launch until it is solved."""

    def __init__(self, part: PartResult, seed: int, number: int, folder: Path) -> None:
        self.part = part
        self.random = random.Random(f"{seed}/{number}")
        self.seed = self.random.randrange(10_000)
        self.again = f"(again: gristmill soak --only training --seed {seed} --round {number})"
        self.folder = folder
        self.output = folder / "output"
        self.pids: set[int] = set()
        self.process: subprocess.Popen | None = None

    def find(self, kind: str, text: str) -> None:
        tail = self.output.read_text().strip().splitlines()[-3:] if self.output.exists() else []
        said = " | ".join(line[-200:] for line in tail)
        self.part.find(kind, f"{text[:300]} {self.again}; it said: {said}")

    def launch(self) -> None:
        """Begins the run, or goes on with it where it has a checkpoint."""
        run = self.folder / "runs" / "soak"
        if any((run / "checkpoints").glob("*.safetensors")):
            words = ["resume", str(run), "--json"]
            self.part.measures["resumed"] = self.part.measures.get("resumed", 0) + 1
        else:
            if run.exists():  # its learner died before the first checkpoint
                run.rename(run.with_name(f"soak-{len(self.pids)}-{time.monotonic_ns()}"))
            words = ["train", str(self.folder / "run.yaml"), "--json"]
            self.part.measures["begun"] = self.part.measures.get("begun", 0) + 1
        # Appended, so that what a killed one said is kept.
        with self.output.open("a") as output:
            self.process = subprocess.Popen(
                [*gristmill_command(), *words],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.pids.add(self.process.pid)

    def workers(self) -> list[int]:
        assert self.process is not None
        found = workers_of(self.process.pid)
        self.pids.update(found)
        return found

    def running(self) -> bool:
        assert self.process is not None
        return self.process.poll() is None

    def torment(self, until: float) -> None:
        """Kills and stops workers, and stops the learner, until the time has come or the run has ended."""
        assert self.process is not None
        stopped: list[tuple[float, int]] = []
        next_fault = time.monotonic() + self.random.expovariate(10)
        while self.running() and time.monotonic() < until:
            now = time.monotonic()
            for entry in [e for e in stopped if e[0] <= now]:
                stopped.remove(entry)
                _signal(entry[1], signal.SIGCONT)
            if now >= next_fault:
                next_fault = now + self.random.expovariate(7)
                self.fault(stopped)
            time.sleep(0.002)
        for _, pid in stopped:
            _signal(pid, signal.SIGCONT)

    def fault(self, stopped: list[tuple[float, int]]) -> None:
        assert self.process is not None
        roll, workers = self.random.random(), self.workers()
        if roll < 0.05:
            if _signal(self.process.pid, signal.SIGSTOP):
                self.part.count("learner", "stopped at random")
                stopped.append((time.monotonic() + self.random.uniform(0.01, 0.3), self.process.pid))
        elif roll < 0.30 and workers:
            pid = self.random.choice(workers)
            if _signal(pid, signal.SIGSTOP):
                self.part.count("worker", "stopped at random")
                stopped.append((time.monotonic() + self.random.uniform(0.01, 0.3), pid))
        elif roll < 0.40 and len(workers) > 1:
            for pid in workers:
                if _signal(pid, signal.SIGKILL):
                    self.part.count("worker", "killed, several at once")
        elif workers:
            pid = self.random.choice(workers)
            while_stopped = any(pid == p for _, p in stopped)
            if _signal(pid, signal.SIGKILL):
                self.part.count("worker", "killed while stopped" if while_stopped else "killed at random")

    def kill_learner(self) -> None:
        assert self.process is not None
        if not self.running():
            return
        workers = self.workers()
        together = self.random.random() < 0.25
        for pid in workers if together else []:
            if _signal(pid, signal.SIGKILL):
                self.part.count("worker", "killed, everybody")
        self.process.kill()
        self.process.wait()
        self.part.count("learner", "killed, everybody" if together else "killed at random")
        self.must_end(workers, "workers outlive their learner")

    def must_end(self, pids: list[int] | set[int], text: str) -> None:
        deadline = time.monotonic() + 10
        while left := [pid for pid in pids if _alive(pid)]:
            if time.monotonic() > deadline:
                self.find("left", f"{text}: {left}")
                return
            time.sleep(0.005)

    def play(self) -> None:
        config = gm.Config(_CONFIG)
        config.run.dir, config.run.name, config.seed = self.folder / "runs", "soak", self.seed
        (self.folder / "run.yaml").write_text(config.to_yaml())
        try:
            self.launch()
            for _ in range(self.random.randint(1, 4)):
                self.torment(time.monotonic() + self.random.uniform(0.1, 1.5))
                if not self.running():
                    break  # solved already, or failed: judged below
                self.kill_learner()
                self.launch()
            self.torment(time.monotonic() + self.random.uniform(0.3, 1.5))
            self.finish()
        finally:
            if self.process is not None and self.running():
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()

    def finish(self) -> None:
        """Nobody is killed any more: the run must come to its end."""
        assert self.process is not None
        self.workers()
        try:
            code = self.process.wait(_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.find("hung", f"the run has not ended {_LIMIT_S:.0f} s after the last fault")
            return
        result = self.result()
        if code != 0 or not result.get("solved"):
            self.find("broken", f"the run ended with {code}: {result}")
        else:
            self.part.measures["solved"] = self.part.measures.get("solved", 0) + 1
        self.must_end(self.pids, "processes are left after the end")
        for segment in gm.list_segments():
            # A killed learner's is removed by the next launch: the last one was a launch, too.
            if segment.pid in self.pids:
                self.find("left", f"shared memory is left after the end: {segment.name}")

    def result(self) -> dict[str, Any]:
        for line in reversed(self.output.read_text().splitlines()):
            if line.startswith("{"):
                return json.loads(line)
        return {}


def run(
    seconds: float, seed: int, only_round: int | None, tell: Callable[[dict[str, Any]], None]
) -> PartResult:
    """Rounds until the time is over: at least one. `tell` gets each one's figures as it ends."""
    part = PartResult("training", measures={"rounds": 0, "begun": 0, "resumed": 0, "solved": 0})
    start, number = time.monotonic(), only_round or 0
    while True:
        kills, stops, violations, begin = part.kills, part.stops, part.violations, time.monotonic()
        with tempfile.TemporaryDirectory(prefix="gristmill-soak-") as folder:
            part.measures["rounds"] += 1
            _Round(part, seed, number, Path(folder)).play()
        tell(
            {
                "round": number,
                "part": "training",
                "seconds": time.monotonic() - begin,
                "kills": part.kills - kills,
                "stops": part.stops - stops,
                "violations": part.violations - violations,
                "texts": part.texts[len(part.texts) - (part.violations - violations) :],
            }
        )
        number += 1
        if only_round is not None or time.monotonic() - start >= seconds or part.violations >= _ENOUGH:
            return part
