"""gm.TrajectorySpec: what one trajectory is made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from gristmill import _core


class TrajectorySpec(dict[str, tuple[str, tuple[int, ...]]]):
    """{name: (dtype, shape)} of one trajectory, in order; dtype is NumPy's name, or "bfloat16".

    spec = gm.TrajectorySpec({"observations": ("float32", (33, 4)), "rewards": (np.float32, 32)})
    queue = gm.TrajectoryQueue(spec, capacity=256)

    What gives dtypes may be names, NumPy's or torch's dtypes, or example arrays and tensors. Raises TypeError
    or ValueError naming the field. NumPy has no bfloat16: arrays of such a field hold its bits as uint16.
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        super().__init__(_core.checked_fields({name: _pair(name, value) for name, value in fields.items()}))

    @classmethod
    def of_environment(cls, environment: Mapping[str, Any] | str, unroll: int) -> TrajectorySpec:
        """What workers with a built-in policy put. environment: its description (Rollouts.environment)."""
        text = environment if isinstance(environment, str) else json.dumps(environment)
        return cls(_core.trajectory_fields(text, unroll))

    @classmethod
    def like(cls, trajectory: Mapping[str, Any]) -> TrajectorySpec:
        """That of an example, {name: array or tensor [shape…]}."""
        return cls({name: np.asarray(v) if not hasattr(v, "shape") else v for name, v in trajectory.items()})

    @property
    def nbytes(self) -> int:
        """Bytes of one trajectory."""
        return sum(a.nbytes for a in self.zeros(1).values())

    def zeros(self, n: int | None = None) -> dict[str, np.ndarray]:
        """Arrays to fill, {name: zeros [n, shape…]}, or [shape…] without n."""
        lead = () if n is None else (n,)
        return {name: np.zeros(lead + shape, _numpy(dtype)) for name, (dtype, shape) in self.items()}

    def bytes_needed(self, capacity: int) -> int:
        """Bytes of shared memory that a queue of `capacity` trajectories takes."""
        return _core.TrajectoryQueue.bytes_needed(dict(self), capacity)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}: {dtype} {list(shape)}" for name, (dtype, shape) in self.items())
        return f"TrajectorySpec({fields})"


def _pair(name: str, value: Any) -> Any:
    if hasattr(value, "dtype") and hasattr(value, "shape"):  # an example
        return _name_of(value.dtype), tuple(value.shape)
    if isinstance(value, tuple | list) and len(value) == 2:
        return _name_of(value[0]), value[1]
    return value  # refused by name in C++


def _name_of(dtype: Any) -> str:
    text = str(dtype).removeprefix("torch.")
    return text if isinstance(dtype, str) or str(dtype).startswith("torch.") else np.dtype(dtype).name


def _numpy(dtype: str) -> np.dtype:
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)
