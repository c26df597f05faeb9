"""EnvPool's environments as a worker steps them: ``env.id: envpool:Pong-v5``.

EnvPool is an optional extra (pip install "gristmill[envpool]"). All environments of a worker are one pool,
stepped by EnvPool's threads: ``env.kwargs: {num_threads: 2}`` says how many.
"""

from __future__ import annotations

import difflib
import json
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from gristmill.gymnasium_env import EnvironmentFailedError, stream_seed
from gristmill.spaces import UnusableEnvironmentError, actions_of, observations_of, spec_json


class EnvPoolVector:
    """`count` copies of an EnvPool environment, the i-th seeded from stream (seed, first_index + i).

    As GymnasiumVector: where an episode ends, the next one begins in the same step. (EnvPool itself would
    spend a step of its own on that.) Raises UnusableEnvironmentError. One thread at a time.
    """

    def __init__(
        self,
        env_id: str,
        kwargs: Mapping[str, Any] | None = None,
        count: int = 1,
        seed: int = 0,
        first_index: int = 0,
    ) -> None:
        if count < 1:
            raise ValueError(f"count is {count}; expected at least 1 environment")
        self.env_id = env_id
        # 31 bits: EnvPool's seeds are ints.
        self.seeds = [stream_seed(seed, first_index + i) >> 33 for i in range(count)]
        self._count = count
        self._pool = _make(env_id, count, self.seeds, dict(kwargs or {}))
        try:
            with warnings.catch_warnings():
                # EnvPool gives Gymnasium the bounds in double precision.
                warnings.filterwarnings("ignore", message=".*precision lowered by casting")
                self._observations = observations_of(self._pool.observation_space)
                self._actions = actions_of(self._pool.action_space)
        except UnusableEnvironmentError as error:
            raise UnusableEnvironmentError(f'env.id "envpool:{env_id}" cannot be used: {error}') from None
        self.observation_shape = self._observations.shape
        self.observation_dtype = self._observations.dtype
        self.action_shape = self._actions.shape
        self.action_dtype = self._actions.dtype
        self._pool_action_dtype = self._pool.action_space.dtype

    def __len__(self) -> int:
        return self._count

    def spec(self) -> str:
        """Shapes and actions, as JSON: see spec_json."""
        return spec_json(self._observations, self._actions)

    def reset(self, observations: np.ndarray) -> None:
        """Begins an episode in each environment. observations: [E, *shape]."""
        seen, _ = self._call(self._pool.reset)
        self._write(observations, seen)

    def step(
        self,
        actions: np.ndarray,
        observations: np.ndarray,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        final_observations: np.ndarray,
    ) -> None:
        """Steps each environment once; arrays as GymnasiumVector.step's."""
        chosen = np.asarray(self._actions.decode(actions), self._pool_action_dtype)
        seen, gained, over, cut, _ = self._call(self._pool.step, chosen)
        rewards[...] = gained
        terminated[...] = over
        truncated[...] = cut
        ended = np.flatnonzero(over | cut).astype(np.int32)
        self._write(observations, seen)
        if ended.size:
            final_observations[ended] = observations[ended]
            following, info = self._call(self._pool.reset, ended)
            order = info["env_id"]
            rows = np.empty((ended.size, *self.observation_shape), self.observation_dtype)
            self._write(rows, following)
            observations[order] = rows

    def close(self) -> None:
        self._pool.close()

    def _write(self, rows: np.ndarray, seen: Any) -> None:
        self._observations.write(rows, seen)

    def _call(self, call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except Exception as error:
            raise EnvironmentFailedError(
                f"envpool:{self.env_id} ({self._count} environments) raised {type(error).__name__}: {error}"
            ) from error


def _make(env_id: str, count: int, seeds: list[int], kwargs: dict[str, Any]) -> Any:
    try:
        import envpool
    except ImportError as error:
        raise UnusableEnvironmentError(
            f'env.id "envpool:{env_id}" needs EnvPool, which cannot be imported: {error}. To install it: '
            f'pip install "gristmill[envpool]"'
        ) from error
    known = envpool.list_all_envs()
    if env_id not in known:
        by_lower = {name.lower(): name for name in known}
        near = difflib.get_close_matches(env_id.lower(), by_lower, n=3, cutoff=0.5)
        nearest = f"; nearest: {', '.join(by_lower[name] for name in near)}" if near else ""
        raise UnusableEnvironmentError(f'env.id: EnvPool knows no "{env_id}"{nearest}')
    for name in ("env_type", "num_envs", "batch_size", "seed"):
        if name in kwargs:
            raise UnusableEnvironmentError(f"env.kwargs: {name} is set by the worker; leave it out")
    try:
        # One thread a pool unless told otherwise: the workers are the processes that use the cores.
        return envpool.make(
            env_id, env_type="gymnasium", num_envs=count, seed=seeds, **{"num_threads": 1, **kwargs}
        )
    except Exception as error:
        given = f" with env.kwargs {json.dumps(kwargs, default=repr)}" if kwargs else ""
        raise UnusableEnvironmentError(
            f'env.id "envpool:{env_id}" could not be made{given}: {type(error).__name__}: {error}'
        ) from error
