"""Where the time of a loop over gm.Rollouts goes, on the run's board: the learner of `gristmill top`."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING

from gristmill import _core
from gristmill.profiling.own_loop import OWN_LOOP
from gristmill.profiling.stages import BATCH_VIEW, BATCH_WAIT, LEARN, PUBLISH

if TYPE_CHECKING:
    from gristmill._core import Batch

_RECENT = 100  # episodes, as in learner/episodes.h


class LoopAccount:
    """The learner's row, and the clock of the loop: it waits for a batch, looks at it, learns while it has
    it, and publishes. What it does outside `batches()` is charged to nothing. One thread."""

    def __init__(self, board: _core.RunBoard, unroll: int, capacity: int, synchronous: bool) -> None:
        self._board = board
        self._unroll = unroll
        self._row = _core.enter_row(board, None)
        # A watcher reads the rest in the configuration; these are not in it.
        told = {"learner": OWN_LOOP, "queue_capacity": capacity, "synchronous": synchronous}
        self._row.set_description(json.dumps(told))
        self._row.set_phase("running")
        self._clock = _core.StageClock(self._row)
        self._returns: deque[float] = deque(maxlen=_RECENT)
        self._has_batch = False

    def begin(self) -> None:
        self._clock.skip()
        self._row.beat()

    def waited(self) -> None:
        """… and no batch has come yet."""
        self._clock.charge(BATCH_WAIT)
        self._row.beat()

    def taken(self, batch: Batch, newest: int, queued: int) -> None:
        """newest: version; queued: trajectories in the queue, with those of the batch."""
        row, n = self._row, len(batch)
        self._clock.charge(BATCH_WAIT)
        row.beat()
        row.add("frames", n * self._unroll)
        row.add("trajectories", n)
        row.record_each("policy_lag", newest - batch["version"])
        row.record_each("queue_fill", [queued])
        row.set_queue_size(queued)
        lengths = batch["episode_lengths"]
        if lengths.any():
            ended = batch["episode_returns"][lengths > 0]
            row.add("episodes", len(ended))
            self._returns.extend(ended[-_RECENT:].tolist())
            row.set_mean_return(sum(self._returns) / len(self._returns))
        self._clock.charge(BATCH_VIEW, batch.position << 16 | min(n, 0xFFFF))
        self._has_batch = True

    def learned(self) -> None:
        """The loop's body is over."""
        self._clock.charge(LEARN)
        self._has_batch = False

    def released(self, queued: int) -> None:
        self._row.add("updates", 1)
        self._row.set_queue_size(queued)
        self._clock.charge(BATCH_VIEW)

    def publishing(self, version: int) -> None:
        if self._has_batch:
            self._clock.charge(LEARN)
        else:
            self._clock.skip()
        self._board.note_publication(version)

    def published(self, version: int) -> None:
        self._clock.charge(PUBLISH, version)
        self._row.set("version", version)
        self._row.beat()

    def end(self) -> None:
        self._row.set_phase("stopped")
