"""Environments by name, class or function, many copies in one process stepped as one.

An environment is named or given as

- ``"cartpole"`` and other native names, ``"plugin:path.so:Name"``: C++;
- ``"gymnasium:LunarLander-v3"``, ``"gymnasium:my_module:MyEnv-v0"``, or just ``"LunarLander-v3"``;
- ``"envpool:Pong-v5"``: all copies stepped by EnvPool's threads inside one worker;
- a ``gymnasium.Env`` class, or any callable that returns such an environment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from gristmill import _core
from gristmill.gymnasium_env import GymnasiumVector
from gristmill.spaces import UnusableEnvironmentError

GYMNASIUM = "gymnasium:"
ENVPOOL = "envpool:"
PLUGIN = "plugin:"


class VectorEnvironment(Protocol):
    """What a worker steps. Arrays are the caller's, one row per environment, any stride apart; where an
    episode ends, the next one begins in the same step."""

    def __len__(self) -> int: ...
    def spec(self) -> str:
        """Shapes and actions, as JSON."""
        ...

    def reset(self, observations: np.ndarray) -> None: ...
    def step(
        self,
        actions: np.ndarray,
        observations: np.ndarray,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        final_observations: np.ndarray,
    ) -> None: ...
    def close(self) -> None: ...


class NativeVector:
    """Environments in C++, for a worker in Python."""

    def __init__(
        self, env_id: str, kwargs: Mapping[str, Any], count: int, seed: int, first_index: int
    ) -> None:
        try:
            self._vector = _core.VectorEnvironment(env_id, count, seed, first_index, json.dumps(kwargs))
        except ValueError as error:
            raise UnusableEnvironmentError(str(error)) from None
        self.reset = self._vector.reset_into
        self.step = self._vector.step_into
        self.spec = self._vector.spec

    def __len__(self) -> int:
        return len(self._vector)

    def close(self) -> None:
        pass


def is_native(env: Any) -> bool:
    return isinstance(env, str) and _core.is_native_environment(env)


def make_vector(
    env: str | Callable[..., Any],
    kwargs: Mapping[str, Any] | None,
    count: int,
    seed: int,
    first_index: int = 0,
) -> VectorEnvironment:
    """`count` copies of an environment, the i-th seeded from stream (seed, first_index + i).

    kwargs are for gymnasium.make, envpool.make or the callable. Raises UnusableEnvironmentError for what
    another attempt would not mend.
    """
    if is_native(env):
        if kwargs and not env.startswith(PLUGIN) and env != "synthetic":
            raise UnusableEnvironmentError(f"the native environment {env} takes no arguments, got {kwargs}")
        return NativeVector(env, kwargs or {}, count, seed, first_index)
    if isinstance(env, str) and env.startswith(ENVPOOL):
        from gristmill.envpool_env import EnvPoolVector

        return EnvPoolVector(env.removeprefix(ENVPOOL), kwargs, count, seed, first_index)
    if isinstance(env, str):
        return GymnasiumVector(env.removeprefix(GYMNASIUM), kwargs, count, seed, first_index)
    if callable(env):
        return GymnasiumVector(env, kwargs, count, seed, first_index)
    raise UnusableEnvironmentError(
        f"env is {env!r}; expected a name such as 'cartpole', 'gymnasium:ID' or 'envpool:ID', an environment "
        f"class, or a callable that returns an environment"
    )


def label_of(env: Any) -> str:
    """What messages call it."""
    return env if isinstance(env, str) else getattr(env, "__qualname__", type(env).__name__)
