"""What gm.Rollouts.batches() yields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from gristmill import _tensors

if TYPE_CHECKING:
    import numpy as np
    import torch

    from gristmill._core import Batch


class RolloutBatch(Mapping[str, "torch.Tensor"]):
    """n trajectories in shared memory: batch["rewards"] is a tensor [n, T, …] that looks into the queue.

    size: n; newest: the version that was published last when it was taken.

    The loop releases it when its body has run. From then on the batch itself refuses with a ValueError.
    Tensors that were taken out of it stay what they are, for as long as they are kept: their places in the
    queue become free when the last of them is gone, and places become free in order, so that the workers wait
    for whoever keeps old ones. clone() what is to be kept for longer than the next batch.
    """

    def __init__(self, batch: Batch, newest: int) -> None:
        self._batch: Batch | None = batch
        self._names = tuple(batch.keys())
        self._views: dict[str, torch.Tensor] = {}
        self.size = len(batch)
        self.newest = newest

    def __getitem__(self, name: str) -> torch.Tensor:
        known = self._views.get(name)
        if known is None:
            if self._batch is None:
                raise ValueError(
                    "the batch is released: the loop that yielded it has gone on. Take what you need out of "
                    "it before, or clone() it"
                )
            known = self._views[name] = self._batch.tensor(name)
        return known

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        """Number of fields; `size` is that of the trajectories."""
        return len(self._names)

    def numpy(self, name: str) -> np.ndarray:
        """The field as an array over the same memory; bfloat16 as uint16."""
        return _tensors.readable(self[name])

    @property
    def policy_lag(self) -> torch.Tensor:
        """[n]: how many versions were published between each trajectory's first step and its taking."""
        return self.newest - self["version"]

    def clone(self) -> dict[str, torch.Tensor]:
        """Copies of all fields, to keep."""
        return {name: self[name].clone() for name in self._names}

    def to(self, device: str | torch.device) -> dict[str, torch.Tensor]:
        """All fields on another device."""
        return {name: self[name].to(device) for name in self._names}

    def release(self) -> None:
        """Idempotent; the loop does it."""
        self._views.clear()
        self._batch = None

    def __repr__(self) -> str:
        state = "released" if self._batch is None else f"{self.size} trajectories"
        return f"<RolloutBatch, {state}: {', '.join(self._names)}>"
