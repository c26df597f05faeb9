"""gm.Rollouts: worker processes that roll a policy out, for a learner of your own.

with gm.Rollouts("cartpole", policy, workers=2, envs_per_worker=16, unroll=32) as rollouts:
    for batch in rollouts.batches(32):
        loss = …  # batch["observations"] is [32, 33, 4], in shared memory
        rollouts.publish(policy)
"""

from __future__ import annotations

import itertools
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

from gristmill import _core
from gristmill.box import Box
from gristmill.config import Config
from gristmill.environments import is_native
from gristmill.payload import Payload
from gristmill.rollout_account import LoopAccount
from gristmill.rollout_batch import RolloutBatch
from gristmill.rollout_lines import WorkerLines
from gristmill.rollout_room import TakenPlaces
from gristmill.rollout_values import environment, on_cpu, resolved, sizes
from gristmill.trajectory_spec import TrajectorySpec

_WAIT_SLICE_S = 0.1
_GRACE_S = 2.0
_MLP = "mlp"
_numbers = itertools.count(1)
_logger = logging.getLogger("gristmill")


class WorkerError(RuntimeError):
    """A worker failed: its number, its message and its traceback are in the text. worker: its number, -1
    when several share the blame."""

    def __init__(self, message: str, worker: int = -1) -> None:
        super().__init__(message)
        self.worker = worker


class Rollouts:
    """Starts worker processes and yields what they roll out.

    env: "cartpole", "LunarLander-v3" or "gymnasium:ID", "envpool:ID", "plugin:path.so:Name", a gymnasium.Env
    class or a callable that returns one (gristmill.environments). policy: a torch.nn.Module, or any object,
    with act(obs, state) (gristmill.acting); "module:Name", which workers import by themselves; or "mlp", the
    built-in network in C++, whose twin in torch is `policy`. Environment and policy are pickled for the
    workers, which are processes of their own, started by exec: a script needs no
    `if __name__ == "__main__"` for them.

    Each worker steps envs_per_worker environments as one vector and puts one trajectory of `unroll` steps for
    each. capacity: trajectories that wait at most (by default as many as three batches and a round of all
    workers); full means that workers wait, which bounds the policy lag. synchronous: workers take turns with
    the learner, collecting a batch under one version and waiting for the next publish.
    final_observations: see gm.Worker. policy_options: of "mlp": {"hidden_sizes": [64, 64], "activation":
    "tanh", …}, as in a configuration's section `policy`.

    on_error: what becomes of a worker whose environment or policy raises: "raise" ends the rollouts with
    WorkerError, "restart" restarts it. One that is killed is restarted in any case, up to max_restarts times
    a minute. What happens to workers is told to the logger "gristmill", and so is what they log, warn and
    print, "worker 1: …", while the loop runs; what they print goes to sys.stdout where that logger takes no
    INFO.

    From another terminal `gristmill top` shows workers and loop, and `gristmill profile PID`, with this
    process's pid, tells where their time goes.

    One thread. Close it, or use it with `with`: Ctrl-C ends the loop as usual, and the block the workers.
    Raises ConfigError, SegmentError.
    """

    def __init__(
        self,
        env: str | Callable[..., Any],
        policy: Any = _MLP,
        *,
        workers: int = 2,
        envs_per_worker: int = 16,
        unroll: int = 32,
        seed: int = 0,
        env_kwargs: Mapping[str, Any] | None = None,
        capacity: int | None = None,
        synchronous: bool = False,
        final_observations: bool = True,
        policy_options: Mapping[str, Any] | None = None,
        on_error: str = "raise",
        max_restarts: int = 10,
        start_timeout: float = 120.0,
        hang_timeout: float = 60.0,
    ) -> None:
        if on_error not in ("raise", "restart"):
            raise ValueError(f"on_error is {on_error!r}; expected 'raise' or 'restart'")
        self._closed = True
        self.workers, self.envs_per_worker, self.unroll = workers, envs_per_worker, unroll
        self._capacity, self._synchronous, self._on_error = capacity, synchronous, on_error
        self._built_in = isinstance(policy, str) and policy == _MLP
        if policy_options and not self._built_in:
            raise ValueError('policy_options are for policy="mlp"')
        self._env_id = env if isinstance(env, str) else ""
        turns = self._synchronous and self._built_in
        values = {
            **sizes(workers, envs_per_worker, unroll, turns),
            **environment(env, env_kwargs),
            **{f"policy.{name}": value for name, value in (policy_options or {}).items()},
            "seed": seed,
            "workers.max_restarts": max_restarts,
            "workers.start_timeout_s": start_timeout,
            "workers.hang_timeout_s": hang_timeout,
            # What workers in C++ say of themselves; see WorkerLines.
            "log.workers_level": "warning",
        }
        config = Config(values).resolve()
        self._options = config.values
        self._description: dict[str, Any] | None = None
        self._policy = None if self._built_in else resolved(policy)
        self._queue: _core.TrajectoryQueue | None = None
        self._account: LoopAccount | None = None
        self._said: WorkerLines | None = None
        self._box: Box | None = None
        self._places = TakenPlaces()

        _core.sweep_segments()
        self._prefix = _core.segment_name(f"rollouts-{next(_numbers)}", "board").rpartition(".")[0]
        self._board = _core.RunBoard.create(f"{self._prefix}.board", workers)
        self._board.set_config(config.dump())
        self._payload: Payload | None = None
        try:
            self._said = WorkerLines(self._board.name)
            if not self._built_in:
                self._make_box()
            command = self._command(env, policy, env_kwargs, seed, final_observations)
            self._pool = _core.WorkerPool(config, command, self._board)
        except BaseException:
            self._remove()
            raise
        self._closed = False

    # ---- For the learner

    def batches(
        self, n: int, *, count: int | None = None, timeout: float | None = None
    ) -> Iterator[RolloutBatch]:
        """Yields batches of exactly n trajectories, the oldest first; for ever, or `count` of them.

        A batch is released when the loop's body has run. Raises WorkerError when the workers failed,
        TimeoutError when a batch takes more than `timeout` seconds, RuntimeError when tensors of earlier
        batches that are still in use leave no room for n more.
        """
        self._refuse_closed()
        queue = self._start(n)
        self._account.begin()
        for _ in itertools.count() if count is None else range(count):
            batch = self._take(queue, n, timeout)
            # After a break the batch can still be used: it ends with its last reference.
            yield batch
            self._account.learned()
            batch.release()
            del batch
            self._account.released(len(queue))

    def publish(self, policy: Any = None) -> int:
        """Gives the workers new parameters: a module, or a state dict; by default those of `policy`. Returns
        their version. Workers act on them from their next step on."""
        self._refuse_closed()
        values = self.policy if policy is None else policy
        box = self._boxed()
        if self._account is not None:
            self._account.publishing(box.version + 1)
        if self._built_in:
            from gristmill.mlp import flattened

            version = box.publish({"parameters": flattened(values, self.policy)})
        elif self._fields:
            version = box.publish(values)
        else:
            import numpy as np

            version = box.publish({"_none": np.zeros(0, np.uint8)})
        if self._account is not None:
            self._account.published(version)
        return version

    @property
    def version(self) -> int:
        """The newest published version; 0 before the first batch is asked for."""
        return 0 if self._box is None else self._box.version

    @property
    def environment(self) -> dict[str, Any]:
        """{"observation": {"dtype", "shape"}, "action": {"count"} or {"low", "high"}}. Waits until a worker
        has made its environments."""
        return {name: self._described()[name] for name in ("observation", "action")}

    @property
    def spec(self) -> TrajectorySpec:
        """The fields of a trajectory. Waits as `environment` does."""
        if self._built_in:
            return TrajectorySpec.of_environment(self.environment, self.unroll)
        return TrajectorySpec(self._described()["fields"])

    @property
    def policy(self) -> Any:
        """The policy as it was given; for "mlp", its twin in torch (gristmill.mlp.MlpPolicy)."""
        if self._policy is None:
            from gristmill.mlp import MlpPolicy

            options = self._options
            self._policy = MlpPolicy(
                self.environment,
                hidden_sizes=options["policy.hidden_sizes"],
                activation=options["policy.activation"],
                shared_trunk=options["policy.shared_trunk"],
                initial_log_std=options["policy.initial_log_std"],
                seed=options["seed"],
            )
        return self._policy

    def statistics(self) -> dict[str, Any]:
        """Figures of now: frames and episodes of all workers, frames/s since their first step, restarts,
        living workers, trajectories in the queue, the newest version."""
        rows = [self._board.row(i)["counters"] for i in range(self.workers)]
        frames = sum(row["frames"] for row in rows)
        begun = [row["first_step_ns"] for row in rows if row["first_step_ns"]]
        ended = max((row["last_step_ns"] for row in rows), default=0)
        elapsed = (ended - min(begun)) / 1e9 if begun and ended else 0.0
        return {
            "frames": frames,
            "episodes": sum(row["episodes"] for row in rows),
            "fps": frames / elapsed if elapsed > 0 else 0.0,
            "restarts": self._pool.restarts,
            "alive": self._pool.alive,
            "queued": 0 if self._queue is None else len(self._queue),
            "version": self.version,
        }

    def close(self) -> None:
        """Ends the workers, two seconds at most, and removes the shared memory; tensors of batches stay
        valid. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._board.request_stop()
        if self._queue is not None:
            self._queue.close()
        self._pool.stop(_GRACE_S)
        self._tell_events()
        self._said.finish()
        if self._account is not None:
            self._account.end()
        self._remove()

    def __enter__(self) -> Rollouts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"version {self.version}"
        return f"<Rollouts, {self.workers} workers × {self.envs_per_worker} environments, {state}>"

    # ---- Start

    def _command(self, env, policy, env_kwargs, seed, final_observations) -> list[str]:
        if self._built_in and is_native(env):
            return _core.native_worker_command()
        setup = {
            "env": env,
            "env_kwargs": dict(env_kwargs or {}),
            "policy": policy if isinstance(policy, str) else on_cpu(policy),
            "envs_per_worker": self.envs_per_worker,
            "unroll": self.unroll,
            "seed": seed,
            "final_observations": final_observations,
            "synchronous": self._synchronous,
        }
        self._payload = Payload(setup)
        program = [sys.executable, "-m", "gristmill.rollout_process"]
        return [*program, "--payload", self._payload.path, "--log-level", "info"]

    def _make_box(self) -> None:
        from gristmill.acting import box_fields

        self._fields = box_fields(self._policy)
        # A policy without parameters has versions all the same.
        self._box = Box.create(f"{self._prefix}.box", self._fields or {"_none": ("uint8", (0,))})

    def _boxed(self) -> Box:
        if self._box is None:
            from gristmill.mlp import parameter_count

            count = parameter_count(self.policy)
            self._box = Box.create(f"{self._prefix}.box", {"parameters": ("float32", (count,))})
        return self._box

    def _start(self, n: int) -> _core.TrajectoryQueue:
        """Queue and first parameters, once the environments' shapes are known: then the workers begin."""
        everyone = self.workers * self.envs_per_worker
        if n < 1:
            raise ValueError(f"n is {n}; expected at least 1 trajectory")
        if self._synchronous and n != everyone:
            raise ValueError(
                f"n is {n}; synchronous rollouts come in batches of workers × envs_per_worker, {everyone}"
            )
        if self._queue is None:
            capacity = self._capacity or 3 * n + everyone
            if capacity < n:
                raise ValueError(f"n is {n}, but capacity is {capacity} trajectories; raise it")
            queue = _core.TrajectoryQueue.create(f"{self._prefix}.queue", self.spec, capacity)
            if self._boxed().version == 0:
                self.publish()
            self._queue = queue
            self._pool.watch_queue(queue)
            self._account = LoopAccount(self._board, self.unroll, capacity, self._synchronous)
            self._board.announce_ready()
        if n > self._queue.capacity:
            raise ValueError(
                f"n is {n}, but the queue holds {self._queue.capacity} trajectories; give capacity={3 * n}"
            )
        return self._queue

    def _described(self) -> dict[str, Any]:
        if self._description is None:
            seen = self._board.changes
            while True:
                for i in range(self.workers):
                    text = self._board.row(i)["description"]
                    if text:
                        self._description = json.loads(text)
                        return self._description
                self._refuse_closed()
                self._check_workers()
                seen = self._board.await_change(seen, _WAIT_SLICE_S)
        return self._description

    # ---- The loop

    def _take(self, queue: _core.TrajectoryQueue, n: int, timeout: float | None) -> RolloutBatch:
        deadline = None if timeout is None else time.monotonic() + timeout
        self._check_workers()
        while True:
            self._refuse_closed()
            try:
                batch = queue.get_many(n, _WAIT_SLICE_S)
            except TimeoutError:
                self._account.waited()
                self._check_workers()
                self._places.check_room(queue.capacity, n)
                if deadline is not None and time.monotonic() > deadline:
                    raise
                continue
            self._places.add(batch)
            self._account.taken(batch, self.version, len(queue))
            return RolloutBatch(batch, self.version)

    def _check_workers(self) -> None:
        """Raises WorkerError for what ended the rollouts."""
        self._said.tell()
        self._tell_events()
        if failure := self._pool.failure:
            raise WorkerError(failure, self._blamed)
        if self._board.stop_requested:
            raise RuntimeError("the rollouts were told to stop on their board")

    _blamed = -1

    def _tell_events(self) -> None:
        for kind, worker, _, message in self._pool.take_events():
            if kind == "started":
                _logger.info("%s", message)
                continue
            _logger.warning("%s", message)
            if kind in ("failed", "gave_up"):
                self._blamed = worker
            if kind == "failed" and self._on_error == "raise" and not self._closed:
                raise WorkerError(message, worker)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise RuntimeError("the rollouts are closed")

    def _remove(self) -> None:
        if self._payload is not None:
            self._payload.close()
        for part in (self._queue, self._box, self._said, self._board):
            if part is not None:
                part.unlink()
