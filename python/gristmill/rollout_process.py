"""A worker of gm.Rollouts: ``python -m gristmill.rollout_process --payload PATH --board NAME --index I``.

Started by the pool; of no use by hand. With a built-in policy the loop is C++ (gristmill._rollout), as in
gristmill.worker; otherwise gm.Worker's.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from typing import Any

from gristmill import _core, payload, stack_report, worker_log
from gristmill.environments import make_vector
from gristmill.gymnasium_env import stream_seed
from gristmill.spaces import UnusableEnvironmentError

_WAIT_SLICE_S = 0.1
_ATTACH_TIMEOUT_S = 10.0
_BUILT_IN = "mlp"


def main(arguments: list[str] | None = None) -> int:
    """The process. Returns its exit status: 0 as told, 1 after an error, which is on the board."""
    parser = argparse.ArgumentParser(prog="python -m gristmill.rollout_process", description=__doc__)
    parser.add_argument("--payload", required=True, help="where the run's process keeps what to run")
    parser.add_argument("--board", required=True, help="the run's board in shared memory")
    parser.add_argument("--index", required=True, type=int, help="this worker's row on it")
    parser.add_argument("--log-level", default="off", help="what goes to the run's log")
    given = parser.parse_args(arguments)
    # Ctrl-C reaches the whole process group: the learner decides, and tells the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stack_report.install()
    worker_log.install(given.board, given.index, given.log_level)

    board = _core.RunBoard.attach(given.board, _ATTACH_TIMEOUT_S)
    _core.die_with_parent(board.owner)
    row = _core.enter_row(board, given.index)
    try:
        setup = payload.load(given.payload)
        if setup["policy"] == _BUILT_IN:
            return _run_built_in(given.board, given.index, setup)
        _run(board, row, given.index, setup)
    except BaseException as error:
        if board.stop_requested:
            return 0  # the run's shared memory may be gone already
        row.set_error(_described(error))
        row.set_phase("fatal" if _is_fatal(error) else "failed")
        return 1
    row.set_phase("stopped")
    return 0


def _run_built_in(board: str, index: int, setup: Mapping[str, Any]) -> int:
    from gristmill import _rollout

    def make(env_id: str, kwargs: str, count: int, seed: int, first_index: int) -> Any:
        return make_vector(setup["env"], setup["env_kwargs"], count, seed, first_index)

    return _rollout.run_worker(board, index, make)


def _run(board: _core.RunBoard, row: _core.BoardRow, index: int, setup: Mapping[str, Any]) -> None:
    import json

    import torch

    from gristmill.box import Box
    from gristmill.rollout_worker import Worker

    torch.set_num_threads(1)
    policy = setup["policy"]
    if isinstance(policy, str):
        policy = resolve(policy)
    if isinstance(policy, torch.nn.Module):
        policy.eval()
    # A restarted worker plays other episodes than the one that died.
    seed = stream_seed(stream_seed(setup["seed"], row.incarnation), index + 1)
    worker = Worker(
        setup["env"],
        policy,
        envs=setup["envs_per_worker"],
        unroll=setup["unroll"],
        seed=seed,
        env_kwargs=setup["env_kwargs"],
        final_observations=setup["final_observations"],
        index=index,
    )
    row.set_description(json.dumps({**worker.environment, "fields": worker.fields}))
    row.set_phase("described")
    while not board.await_ready(_WAIT_SLICE_S):
        if board.stop_requested:
            return
        row.beat()
    prefix = board.name.rpartition(".")[0]
    queue = _core.TrajectoryQueue.attach(f"{prefix}.queue", _ATTACH_TIMEOUT_S)
    box = Box.attach(f"{prefix}.box", _ATTACH_TIMEOUT_S)
    if queue.fields != worker.fields:
        raise UnusableEnvironmentError(
            f"this worker's trajectories are {worker.fields}, those of the first one to tell {queue.fields}: "
            f"environment and policy must be the same in every worker"
        )
    row.set_phase("running")
    _Loop(board, row, worker, queue, box, setup["synchronous"]).run()
    worker.close()


class _Loop:
    """worker.run(), with its figures on the board and turns taken in synchronous runs."""

    def __init__(self, board, row, worker, queue, box, synchronous: bool) -> None:
        self.board, self.row, self.worker, self.queue, self.box = board, row, worker, queue, box
        self.synchronous = synchronous

    def run(self) -> None:
        row, worker, queue = self.row, self.worker, self.queue
        clock = _core.StageClock(row)
        worker.charge_to(clock)
        if not self._await_version(1):
            return
        row.set("first_step_ns", time.monotonic_ns())
        bytes_each = worker.spec.nbytes
        box = None if self.synchronous else self.box
        while worker.collect(box, self._stepped) is not None:
            row.set("episodes", worker.episodes)
            if not worker.put(queue, self._stopped):
                return
            row.set("trajectories", worker.put_trajectories)
            row.set("copied_bytes", worker.put_trajectories * bytes_each)
            row.set("last_step_ns", time.monotonic_ns())
            row.set_queue_size(len(queue))
            if self.synchronous:
                if not self._await_version(worker.version + 1):
                    return
                worker.act_again()

    def _stepped(self) -> bool:
        self.row.set("frames", self.worker.frames)
        return self._stopped()

    def _stopped(self) -> bool:
        self.row.beat()
        return self.board.stop_requested

    def _await_version(self, version: int) -> bool:
        while self.box.version < version:
            if self._stopped():
                return False
            try:
                self.box.watch(version - 1, timeout=_WAIT_SLICE_S)
            except TimeoutError:
                pass
        self.row.set("version", self.worker.load(self.box))
        return True


def resolve(name: str) -> Any:
    """What "module:Name" names, made if it is a class or a function. Raises PayloadError."""
    import importlib

    import torch

    module, _, attribute = name.partition(":")
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise payload.PayloadError(f'policy "{name}" cannot be imported: {error}') from error
    if isinstance(found, torch.nn.Module) or not callable(found):
        return found
    return found()


def _is_fatal(error: BaseException) -> bool:
    """A restart would only repeat it."""
    if isinstance(error, UnusableEnvironmentError | payload.PayloadError):
        return True
    acting = sys.modules.get("gristmill.acting")
    return acting is not None and isinstance(error, acting.PolicyError)


def _described(error: BaseException) -> str:
    """The message first, which must survive a cut, then the traceback."""
    lines = traceback.format_exception(error)
    return f"{type(error).__name__}: {error}\n\n{''.join(lines)}"


if __name__ == "__main__":
    sys.exit(main())
