"""How Gymnasium's spaces become rows of arrays, and rows of actions become what an environment takes.

Supported: observations of Box (one array) and Discrete (one-hot), actions of Discrete and of Box with a
floating dtype. Anything else is refused by name: see :class:`UnusableEnvironmentError`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

SUPPORTED = (
    "Supported are Box and Discrete observations, and Discrete and Box (floating dtype) actions; flatten or "
    "rearrange others with a wrapper, such as gymnasium.wrappers.FlattenObservation, in an environment id "
    "of your own"
)


class UnusableEnvironmentError(ValueError):
    """The environment cannot be made, or is of a kind that is not supported. Trying again is no help."""


class BoxObservations:
    """Arrays as they are: uint8 stays, every other real dtype becomes float32."""

    def __init__(self, space: spaces.Box) -> None:
        dtype = np.dtype(space.dtype)
        if dtype.kind not in "biuf":
            raise UnusableEnvironmentError(f"observations of dtype {dtype} cannot become float32 or uint8")
        if 0 in space.shape:
            raise UnusableEnvironmentError(f"observations of shape {space.shape} are empty")
        if dtype.kind in "iu" and dtype.itemsize >= 4 and _bound(space) > 2**24:
            warnings.warn(
                f"observations of dtype {dtype} become float32, which is exact up to 2^24 only; the space "
                f"goes to {_bound(space):.0f}",
                stacklevel=2,
            )
        self.shape = tuple(space.shape)
        self.dtype = np.dtype(np.uint8 if dtype == np.uint8 else np.float32)

    def check(self, observation: Any) -> None:
        """Raises ValueError where `observation` is not of the space. Called at each episode's start."""
        array = np.asarray(observation)
        if array.shape != self.shape:
            raise ValueError(f"the observation has shape {array.shape}, its space {self.shape}")
        if not np.can_cast(array.dtype, self.dtype, "same_kind"):
            raise ValueError(f"the observation has dtype {array.dtype}, which does not become {self.dtype}")

    def write(self, rows: np.ndarray, observations: Sequence[Any]) -> None:
        """Writes one observation into each row of `rows`, [E, *shape]."""
        rows[...] = observations

    def write_one(self, rows: np.ndarray, i: int, observation: Any) -> None:
        """Writes `observation` into row `i`."""
        rows[i] = observation


class DiscreteObservations:
    """A number from start to start + n - 1 as n float32: 1 in its place, 0 elsewhere."""

    def __init__(self, space: spaces.Discrete) -> None:
        self.shape = (int(space.n),)
        self.dtype = np.dtype(np.float32)
        self._start = int(space.start)
        self._count = int(space.n)

    def check(self, observation: Any) -> None:
        if np.ndim(observation) != 0 or not 0 <= int(observation) - self._start < self._count:
            last = self._start + self._count - 1
            raise ValueError(f"the observation is {observation!r}; its space has {self._start} to {last}")

    def write(self, rows: np.ndarray, observations: Sequence[Any]) -> None:
        for i, observation in enumerate(observations):
            self.write_one(rows, i, observation)

    def write_one(self, rows: np.ndarray, i: int, observation: Any) -> None:
        self.check(observation)
        rows[i] = 0
        rows[i, int(observation) - self._start] = 1


class DiscreteActions:
    """int32 rows, 0 to n - 1, as Python integers from `start` on."""

    def __init__(self, space: spaces.Discrete) -> None:
        if int(space.n) >= 2**31:
            raise UnusableEnvironmentError(f"{space} has more actions than an int32 can number")
        self._start = int(space.start)
        self.json: dict[str, Any] = {"count": int(space.n)}
        self.dtype = np.dtype(np.int32)
        self.shape: tuple[int, ...] = ()

    def decode(self, actions: np.ndarray) -> list[int]:
        """`actions`: [E]."""
        return (actions + self._start).tolist() if self._start else actions.tolist()


class BoxActions:
    """float32 rows, clipped to the space, in the space's own shape and dtype."""

    def __init__(self, space: spaces.Box) -> None:
        self._dtype = np.dtype(space.dtype)
        if self._dtype.kind != "f":
            raise UnusableEnvironmentError(
                f"Box actions of dtype {self._dtype} are not supported. {SUPPORTED}"
            )
        if 0 in space.shape:
            raise UnusableEnvironmentError(f"actions of shape {space.shape} are empty")
        with np.errstate(over="ignore"):  # a float64's largest number stands for no bound at all
            low = space.low.astype(np.float32).reshape(-1)
            high = space.high.astype(np.float32).reshape(-1)
        self._bounds = (low, high) if np.isfinite(low).any() or np.isfinite(high).any() else None
        self._space_shape = tuple(space.shape)
        self.json = {"low": _jsonable(low), "high": _jsonable(high)}
        self.dtype = np.dtype(np.float32)
        self.shape = (low.size,)

    def decode(self, actions: np.ndarray) -> np.ndarray:
        """`actions`: [E, dims]. The result shares nothing with it: environments may keep theirs."""
        chosen = np.array(actions) if self._bounds is None else np.clip(actions, *self._bounds)
        return chosen.reshape(len(actions), *self._space_shape).astype(self._dtype, copy=False)


def observations_of(space: spaces.Space) -> BoxObservations | DiscreteObservations:
    """Raises UnusableEnvironmentError for spaces other than Box and Discrete."""
    if isinstance(space, spaces.Box):
        return BoxObservations(space)
    if isinstance(space, spaces.Discrete):
        return DiscreteObservations(space)
    raise UnusableEnvironmentError(f"its observation space is {_named(space)}. {SUPPORTED}")


def actions_of(space: spaces.Space) -> BoxActions | DiscreteActions:
    """Raises UnusableEnvironmentError for spaces other than Discrete and Box with a floating dtype."""
    if isinstance(space, spaces.Discrete):
        return DiscreteActions(space)
    if isinstance(space, spaces.Box):
        return BoxActions(space)
    raise UnusableEnvironmentError(f"its action space is {_named(space)}. {SUPPORTED}")


def spec_json(
    observations: BoxObservations | DiscreteObservations, actions: BoxActions | DiscreteActions
) -> str:
    """Shapes and actions, as the JSON that EnvironmentSpec::from_json reads."""
    observation = {"dtype": observations.dtype.name, "shape": list(observations.shape)}
    return json.dumps({"observation": observation, "action": actions.json})


def _named(space: spaces.Space) -> str:
    text = repr(space)
    return text if len(text) < 200 else f"{type(space).__name__} ({text[:200]}…)"


def _bound(space: spaces.Box) -> float:
    return max(float(np.abs(space.low.astype(float)).max()), float(np.abs(space.high.astype(float)).max()))


def _jsonable(bounds: np.ndarray) -> list[float | None]:
    # JSON has no infinity: null is "unbounded".
    return [float(bound) if np.isfinite(bound) else None for bound in bounds]
