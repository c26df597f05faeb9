"""Which of the places of a gm.Rollouts' queue are not free, since tensors still look into them."""

from __future__ import annotations

import gc
import weakref

from gristmill import _core


class TakenPlaces:
    """Of one queue, by the thread that takes from it. Places become free in order: those from the oldest
    batch on that is still looked into are not."""

    def __init__(self) -> None:
        self._out: list[tuple[weakref.ref, int]] = []  # batches, and how many trajectories came before each
        self._taken = 0

    def add(self, batch: _core.Batch) -> None:
        self._out = [entry for entry in self._out if entry[0]() is not None]
        self._out.append((weakref.ref(batch), self._taken))
        self._taken += len(batch)

    def held(self) -> int:
        return self._taken - min(
            (begin for ref, begin in self._out if ref() is not None), default=self._taken
        )

    def check_room(self, capacity: int, n: int) -> None:
        """Raises RuntimeError when the places still looked into leave no room for n more, ever."""
        if capacity - self.held() >= n:
            return
        gc.collect()  # tensors in reference cycles are no one's any more
        if capacity - self.held() < n:
            raise RuntimeError(
                f"tensors of a batch that was taken {self.held()} trajectories ago are still in use, and "
                f"the queue holds {capacity}: no room for {n} more, since places become free in order. "
                f"clone() what you keep, or give a larger capacity"
            )
