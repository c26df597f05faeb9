"""gm.Worker: environments ⇄ policy → trajectories, in Python. The loop is that of rollout/worker.cc, for
policies that are the user's own."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gristmill import _tensors
from gristmill._core import QueueClosed
from gristmill.acting import Acted, ActingPolicy, state_leaves, state_reset
from gristmill.environments import label_of, make_vector
from gristmill.profiling.stages import ASSEMBLE, COPY, ENVIRONMENT, INFERENCE, PARAMETERS, SPACE_WAIT
from gristmill.spaces import UnusableEnvironmentError
from gristmill.trajectory_spec import TrajectorySpec

if TYPE_CHECKING:
    from gristmill._core import StageClock

_WAIT_SLICE_S = 0.1


class Uncharged:
    """In the place of a StageClock, for a worker whose time nobody watches."""

    def charge(self, stage: int, argument: int = 0) -> None: ...
    def charge_parts(self, stage: int, argument: int, inner: int, inner_ns: int) -> None: ...
    def acted(self, version: int) -> None: ...


class Worker:
    """Steps `envs` copies of an environment with a policy, `unroll` steps at a time.

    worker = gm.Worker("CartPole-v1", policy, envs=8, unroll=32)
    trajectories = worker.collect()         # {name: array [8, 32, …]}
    worker.run(queue, box)                  # … or into a queue, with the parameters of a box

    env: see gristmill.environments; policy: see gristmill.acting. The fields are those of `spec`:

    - observations [T+1, …]: the last is the state after the last step;
    - actions, rewards, terminated, truncated, and what the policy returns: [T, …];
    - values [T+1], if the policy returns them, and final_values [T]: the value of an episode's last
      observation where it was truncated, 0 elsewhere;
    - final_observations [T, …]: the last observation of an episode that ended there, zeros elsewhere;
    - state…: a recurrent policy's state before the first step;
    - episode_returns, episode_lengths [T]: of an episode that ended there, 0 elsewhere;
    - version: of the parameters at the first step; versions [T]: at each;
    - worker, slot: who stepped it.

    The next episode begins in the step of an episode's end. One thread at a time.

    It can be passed to a child process. Pickled (spawn, forkserver), it is made anew there from the same
    arguments, so that its episodes begin as this one's began: give each its own seed and index.
    """

    def __init__(
        self,
        env: str | Callable[..., Any],
        policy: Any,
        *,
        envs: int = 16,
        unroll: int = 32,
        seed: int = 0,
        env_kwargs: Mapping[str, Any] | None = None,
        final_observations: bool = True,
        index: int = 0,
    ) -> None:
        if unroll < 1:
            raise ValueError(f"unroll is {unroll}; expected at least 1 step")
        self._made_of = (
            (env, policy),
            {
                "envs": envs,
                "unroll": unroll,
                "seed": seed,
                "env_kwargs": env_kwargs,
                "final_observations": final_observations,
                "index": index,
            },
        )
        # Environments and policies that draw from the global generators repeat themselves too.
        random.seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)
        torch.manual_seed(seed & 0x7FFFFFFFFFFFFFFF)
        self._env_label = label_of(env)
        self.environments = make_vector(env, env_kwargs, envs, seed)
        self.environment: dict[str, Any] = json.loads(self.environments.spec())
        self.index, self._envs, self._unroll = index, envs, unroll
        self._policy = ActingPolicy(policy, self.environment, envs)
        self._initial_state = self._state = self._policy.initial_state()
        self.version = 0  # of the parameters it acts on
        self.frames = 0  # environment steps so far
        self.episodes = 0  # that have ended
        self.put_trajectories = 0  # by run() or put()
        self._clock: StageClock | Uncharged = Uncharged()

        shape = tuple(self.environment["observation"]["shape"])
        self._first = np.zeros((envs, *shape), self.environment["observation"]["dtype"])
        self.environments.reset(self._first)
        self._check_finite(self._first, "observation")
        self._next = self._policy.act(torch.from_numpy(self._first), self._state)
        self.spec = self._make_spec(shape, final_observations)
        self._buffers = self.spec.zeros(envs)
        self._finals = np.zeros_like(self._first)
        self._buffers["worker"][:] = index
        self._buffers["slot"][:] = np.arange(envs)
        self._buffers["observations"][:, unroll] = self._first
        self._tensors = [torch.from_numpy(self._buffers["observations"][:, t]) for t in range(unroll + 1)]
        self._final_tensor = torch.from_numpy(self._finals)
        self._returns = np.zeros(envs)
        self._lengths = np.zeros(envs, np.int32)
        self._acted_version = 0
        self._new_version = False  # whether the last act() was the first under its version

    def __reduce__(self):
        return _made_anew, self._made_of

    @property
    def fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """{name: (dtype, shape)} of one trajectory."""
        return dict(self.spec)

    def charge_to(self, clock: StageClock) -> None:
        """From now on where its time goes is told there, stage by stage."""
        self._clock = clock

    def load(self, box: Any) -> int:
        """Acts on the box's newest parameters from the next step on, in place; returns their version."""
        self.version = self._policy.use(box)
        self._clock.charge(PARAMETERS, self.version)
        return self.version

    def collect(
        self, box: Any = None, on_step: Callable[[], bool] | None = None
    ) -> dict[str, np.ndarray] | None:
        """The next trajectories, {name: array [envs, …]}: the worker's own arrays, valid until the next call.

        box: newer parameters are taken between two steps. on_step is called after each; when it returns
        True, the rest is left and None comes back.
        """
        buffers, unroll = self._buffers, self._unroll
        buffers["observations"][:, 0] = buffers["observations"][:, unroll]
        for name in ("final_values", "episode_returns", "episode_lengths", "final_observations"):
            if name in buffers:
                buffers[name].fill(0)
        for name, leaf in state_leaves(self._state).items():
            buffers[name][:] = _tensors.readable(leaf)
        if self.version != self._acted_version and self._acted_version == 0:
            self._act(0)  # the first parameters came after the first look
            self._charge_inference()
        buffers["version"][:] = self._acted_version
        self._store(0)
        self._clock.charge(ASSEMBLE)
        for t in range(unroll):
            self._step(t)
            if box is not None and self._policy.has_parameters and box.version != self.version:
                self.load(box)
            # The actions at step T are the next trajectories' first: their values are the bootstrap.
            self._act(t + 1)
            self._store(t + 1)
            self._charge_inference()
            if on_step is not None and on_step():
                return None
        return buffers

    def act_again(self) -> None:
        """The next trajectories' first actions by the parameters of now, not by those of the last step."""
        self._act(self._unroll)
        self._charge_inference()

    def put(self, queue: Any, stop: Callable[[], bool] = lambda: False) -> bool:
        """Puts what collect() returned. False: told to stop, or the queue is closed."""
        values: dict[str, Any] = self._buffers
        done = waited = 0
        while not stop():
            try:
                put, slice_ns, places = queue.put_part(values, _WAIT_SLICE_S)
            except QueueClosed:
                return False
            done += put
            waited += slice_ns
            if done == self._envs:
                self._clock.charge_parts(COPY, places, SPACE_WAIT, waited)
                self.put_trajectories += done
                return True
            values = {name: array[done:] for name, array in self._buffers.items()}
        return False

    def run(self, queue: Any, box: Any = None, stop: Callable[[], bool] = lambda: False) -> None:
        """Collects and puts until stop() is true or the queue is closed."""
        if box is not None and box.version > 0:
            self.load(box)
        while self.collect(box, stop) is not None and self.put(queue, stop):
            pass

    def close(self) -> None:
        """Closes the environments."""
        self.environments.close()

    def _make_spec(self, shape: tuple[int, ...], final_observations: bool) -> TrajectorySpec:
        steps = self._unroll
        dtype = self.environment["observation"]["dtype"]
        acted = self._next
        fields: dict[str, tuple[str, tuple[int, ...]]] = {
            "observations": (dtype, (steps + 1, *shape)),
            "actions": (
                "int32" if self._policy.action_count else "float32",
                (steps, *self._policy.action_shape),
            ),
            "rewards": ("float32", (steps,)),
            "terminated": ("bool", (steps,)),
            "truncated": ("bool", (steps,)),
        }
        for name, array in acted.fields.items():
            if name == "values":
                fields["values"] = ("float32", (steps + 1,))
                fields["final_values"] = ("float32", (steps,))
            elif name == "log_probs":
                fields["log_probs"] = ("float32", (steps,))
            elif name != "actions":
                kind = acted.dtypes[name] or array.dtype.name
                fields[name] = (kind, (steps, *array.shape[1:]))
        for name, leaf in state_leaves(self._state).items():
            fields[name] = (str(leaf.dtype).removeprefix("torch."), tuple(leaf.shape[1:]))
        if final_observations:
            fields["final_observations"] = (dtype, (steps, *shape))
        fields["episode_returns"] = ("float32", (steps,))
        fields["episode_lengths"] = ("int32", (steps,))
        fields["versions"] = ("int64", (steps,))
        fields["version"] = ("int64", ())
        fields["worker"] = ("int32", ())
        fields["slot"] = ("int32", ())
        return TrajectorySpec(fields)

    def _act(self, t: int) -> None:
        self._next = self._policy.act(self._tensors[t], self._state)
        self._new_version = self._acted_version != self.version
        self._acted_version = self.version

    def _charge_inference(self) -> None:
        """With the writing of what act() returned, as in C++: a clock read of its own would cost as much."""
        self._clock.charge(INFERENCE)
        if self._new_version:
            self._clock.acted(self._acted_version)

    def _store(self, t: int) -> None:
        """What act() said of step t. At T only the values: the rest is the next trajectories'."""
        acted: Acted = self._next
        for name, array in acted.fields.items():
            if t < self._unroll or name == "values":
                rows = self._buffers[name]
                if array.shape[1:] != rows.shape[2:]:
                    raise ValueError(
                        f"act(): '{name}' has shape {list(array.shape)} now, and had "
                        f"{[self._envs, *rows.shape[2:]]} at first"
                    )
                rows[:, t] = array
        if t < self._unroll:
            self._buffers["versions"][:, t] = self._acted_version

    def _step(self, t: int) -> None:
        buffers = self._buffers
        rewards, over, cut = (buffers[name][:, t] for name in ("rewards", "terminated", "truncated"))
        self.environments.step(
            buffers["actions"][:, t], buffers["observations"][:, t + 1], rewards, over, cut, self._finals
        )
        self._check_finite(buffers["observations"][:, t + 1], "observation")
        self._check_finite(rewards, "reward")
        self.frames += self._envs
        self._returns += rewards
        self._lengths += 1
        self._clock.charge(ENVIRONMENT)
        state = self._next.state
        ended = over | cut
        if ended.any():
            self._end_episodes(t, ended, cut, state)
            if state is not None:
                state = state_reset(state, self._initial_state, ended)
        self._state = state

    def _end_episodes(self, t: int, ended: np.ndarray, cut: np.ndarray, state: Any) -> None:
        buffers = self._buffers
        buffers["episode_returns"][ended, t] = self._returns[ended]
        buffers["episode_lengths"][ended, t] = self._lengths[ended]
        self._returns[ended] = 0
        self._lengths[ended] = 0
        self.episodes += int(ended.sum())
        if "final_observations" in buffers:
            buffers["final_observations"][ended, t] = self._finals[ended]
        if "final_values" in buffers and cut.any():
            # All rows at once: those without an end hold stale observations, whose values are not used.
            values = self._policy.values(self._final_tensor, state)
            buffers["final_values"][cut, t] = values[cut]
            self._clock.charge(INFERENCE)

    def _check_finite(self, rows: np.ndarray, what: str) -> None:
        if rows.dtype.kind != "f" or np.isfinite(rows).all():
            return
        slot = int(np.argwhere(~np.isfinite(rows))[0][0])
        raise UnusableEnvironmentError(
            f"{what} is not finite in environment {slot} of worker {self.index} ({self._env_label}): "
            f"{rows[slot]}. Mend the environment, or clip what it returns"
        )


def _made_anew(arguments: tuple[Any, ...], options: dict[str, Any]) -> Worker:
    return Worker(*arguments, **options)
