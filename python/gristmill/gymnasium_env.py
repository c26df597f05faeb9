"""Gymnasium environments as a worker steps them: many copies in one process, stepped as one.

``env.id: gymnasium:LunarLander-v3`` names one that Gymnasium knows, ``gymnasium:my_module:MyEnv-v0`` one
that importing ``my_module`` registers.
"""

from __future__ import annotations

import copy
import difflib
import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import gymnasium
import numpy as np

from gristmill.spaces import UnusableEnvironmentError, actions_of, observations_of, spec_json

_MASK = (1 << 64) - 1

# What to install for the environments that come with Gymnasium, and for well-known others by the
# namespace of their ids.
_EXTRAS = {
    "gymnasium.envs.box2d": '"gymnasium[box2d]"',
    "gymnasium.envs.mujoco": '"gymnasium[mujoco]"',
    "gymnasium.envs.classic_control": '"gymnasium[classic-control]"',
    "gymnasium.envs.toy_text": '"gymnasium[toy-text]"',
}
_NAMESPACES = {"ALE": ("ale-py", "ale_py"), "minigrid": ("minigrid", "minigrid")}


class EnvironmentFailedError(RuntimeError):
    """An environment raised while it was stepped or reset. Says which one, its seed, episode and step;
    the environment's own exception is its cause."""


def stream_seed(seed: int, stream: int) -> int:
    """SplitMix64 of a run's seed and a stream's number, as in rollout/environment.h."""
    return _splitmix64(_splitmix64(seed & _MASK) ^ ((stream * 0x9E3779B97F4A7C15) & _MASK))


def _splitmix64(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


class GymnasiumVector:
    """`count` copies of a Gymnasium environment, the i-th seeded from stream (seed, first_index + i).

    Where an episode ends, the next one begins in the same step. All arrays are the caller's, one row per
    environment; rows may lie any stride apart, inside a larger buffer for instance.

    Raises UnusableEnvironmentError when the environment cannot be made or its spaces are not supported.
    One thread at a time.
    """

    def __init__(
        self,
        env: str | Callable[..., gymnasium.Env],
        kwargs: Mapping[str, Any] | None = None,
        count: int = 1,
        seed: int = 0,
        first_index: int = 0,
    ) -> None:
        """env: an id, or a class or callable that returns an environment."""
        if count < 1:
            raise ValueError(f"count is {count}; expected at least 1 environment")
        env_id = env if isinstance(env, str) else getattr(env, "__qualname__", repr(env))
        self.env_id = env_id
        self.envs = [make(env, kwargs) if isinstance(env, str) else _call(env, kwargs) for _ in range(count)]
        # 31 bits: the random generators of some environments take no more.
        self.seeds = [stream_seed(seed, first_index + i) >> 33 for i in range(count)]
        try:
            self._observations = observations_of(self.envs[0].observation_space)
            self._actions = actions_of(self.envs[0].action_space)
        except UnusableEnvironmentError as error:
            raise UnusableEnvironmentError(f'env.id "{env_id}" cannot be used: {error}') from None
        self.observation_shape = self._observations.shape
        self.observation_dtype = self._observations.dtype
        self.action_shape = self._actions.shape
        self.action_dtype = self._actions.dtype
        self._step_functions: list[Callable[[Any], tuple]] = [env.step for env in self.envs]
        self._time = 0
        self._began = [0] * count  # vector step at which each one's episode began
        self._episodes = [0] * count

    def __len__(self) -> int:
        return len(self.envs)

    def spec(self) -> str:
        """Shapes and actions, as JSON: see spec_json."""
        return spec_json(self._observations, self._actions)

    def reset(self, observations: np.ndarray) -> None:
        """Begins an episode in each environment; the first call seeds them. observations: [E, *shape]."""
        self._observations.write(observations, [self._begin(i) for i in range(len(self.envs))])

    def step(
        self,
        actions: np.ndarray,
        observations: np.ndarray,
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        final_observations: np.ndarray,
    ) -> None:
        """Steps each environment once.

        actions: [E] int32 or [E, dims] float32. Written: observations [E, *shape], those of the next
        episode's start where one ended; rewards [E] float32; terminated and truncated [E] bool;
        final_observations [E, *shape], only the rows of episodes that ended.
        Raises EnvironmentFailedError when an environment does.
        """
        self._time += 1
        results: list[tuple] = []
        add = results.append
        try:
            for step, action in zip(self._step_functions, self._actions.decode(actions), strict=True):
                add(step(action))
        except Exception as error:
            self._fail(len(results), error)
        try:
            seen, gained, over, cut, _ = zip(*results, strict=True)
            if True in over or True in cut:
                seen = self._begin_anew(seen, over, cut, final_observations)
            self._observations.write(observations, seen)
            rewards[...] = gained
            terminated[...] = over
            truncated[...] = cut
        except (TypeError, ValueError) as error:
            self._blame(results, error)

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _begin_anew(self, seen: tuple, over: tuple, cut: tuple, final_observations: np.ndarray) -> list:
        following = list(seen)
        for i in range(len(seen)):
            if over[i] or cut[i]:
                # Written before the reset: an environment may hand out the same array again.
                self._observations.write_one(final_observations, i, seen[i])
                following[i] = self._begin(i)
        return following

    def _begin(self, i: int) -> Any:
        self._began[i] = self._time
        seed = self.seeds[i] if self._episodes[i] == 0 else None
        self._episodes[i] += 1
        try:
            observation, _ = self.envs[i].reset(seed=seed)
            self._observations.check(observation)
        except Exception as error:
            self._fail(i, error)
        return observation

    def _fail(self, i: int, error: BaseException) -> NoReturn:
        if isinstance(error, EnvironmentFailedError):
            raise error
        when = f"step {self._time - self._began[i]}" if self._time > self._began[i] else "the reset"
        raise EnvironmentFailedError(
            f"environment {i} ({self.env_id}, seed {self.seeds[i]}) raised {type(error).__name__} in {when} "
            f"of its episode {self._episodes[i]}, after {self._time} steps in all: {error}"
        ) from error

    def _blame(self, results: list[tuple], error: Exception) -> NoReturn:
        """Names the environment whose result could not be used."""
        for i, result in enumerate(results):
            if flaw := self._flaw(result):
                self._fail(i, flaw)
        raise error

    def _flaw(self, result: tuple) -> Exception | None:
        try:
            observation, reward, over, cut, _ = result
            self._observations.check(observation)
            np.float32(reward), bool(over), bool(cut)
        except Exception as flaw:
            return flaw
        return None


def make(env_id: str, kwargs: Mapping[str, Any] | None = None) -> gymnasium.Env:
    """gymnasium.make without its checkers. Raises UnusableEnvironmentError, which says how to mend it."""
    spec = _find_spec(env_id)
    # Without the wrappers that check every step: reset() and step() are called in order here.
    spec.order_enforce = False
    try:
        return gymnasium.make(spec, **{"disable_env_checker": True, **(kwargs or {})})
    except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
        raise UnusableEnvironmentError(
            f'env.id "{env_id}" needs what is not installed: {error}{_how_to_install(spec)}'
        ) from error
    except Exception as error:
        given = f" with env.kwargs {json.dumps(dict(kwargs), default=repr)}" if kwargs else ""
        raise UnusableEnvironmentError(
            f'env.id "{env_id}" could not be made{given}: {type(error).__name__}: {error}'
        ) from error


def _call(maker: Callable[..., gymnasium.Env], kwargs: Mapping[str, Any] | None) -> gymnasium.Env:
    """An environment from its class, or from a function that makes it."""
    name = getattr(maker, "__qualname__", repr(maker))
    try:
        env = maker(**(kwargs or {}))
    except Exception as error:
        given = f" with {dict(kwargs)}" if kwargs else ""
        raise UnusableEnvironmentError(
            f"the environment {name} could not be made{given}: {type(error).__name__}: {error}"
        ) from error
    missing = [
        part for part in ("reset", "step", "observation_space", "action_space") if not hasattr(env, part)
    ]
    if missing:
        raise UnusableEnvironmentError(
            f"{name}() returned {type(env).__name__}, which has no {', '.join(missing)}; expected a "
            f"gymnasium.Env"
        )
    return env


def _find_spec(env_id: str) -> gymnasium.envs.registration.EnvSpec:
    module, _, name = env_id.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise UnusableEnvironmentError(
                f'env.id "{env_id}": the module "{module}", which should register "{name}", cannot be '
                f"imported: {error}. Install it, or put its folder on PYTHONPATH"
            ) from error
    spec = gymnasium.registry.get(name)
    if spec is None:
        raise UnusableEnvironmentError(f'env.id: Gymnasium knows no "{name}"{_hint(name)}')
    return copy.deepcopy(spec)


def _hint(name: str) -> str:
    namespace = name.partition("/")[0] if "/" in name else ""
    registered = any(known.startswith(f"{namespace}/") for known in gymnasium.registry)
    if namespace in _NAMESPACES and not registered:
        package, module = _NAMESPACES[namespace]
        return f"; pip install {package}, and write it as gymnasium:{module}:{name}"
    by_lower = {known.lower(): known for known in gymnasium.registry}
    near = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)
    nearest = ", ".join(by_lower[known] for known in near)
    return (f"; nearest: {nearest}" if nearest else "") + (
        ". One that another package registers is written gymnasium:MODULE:ID"
    )


def _how_to_install(spec: gymnasium.envs.registration.EnvSpec) -> str:
    entry = spec.entry_point if isinstance(spec.entry_point, str) else ""
    for prefix, package in _EXTRAS.items():
        if entry.startswith(prefix):
            return f". To install it: pip install {package}"
    return ""
