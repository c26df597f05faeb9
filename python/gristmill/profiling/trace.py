"""Spans of every process of a run, as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing.

Every process is one track. An arrow leads from the span in which a worker copied trajectories into the queue
to the span in which the learner looked at them: both name the places in the queue.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gristmill import _core
from gristmill.profiling import board as boards
from gristmill.profiling.stages import BATCH_VIEW, COPY, PARAMETERS, PUBLISH, STAGES

# Of the rings, which hold 4096 spans each unless there are many workers.
_DRAIN_S = 0.03


@dataclass
class Track:
    """One process. spans: uint64 [n, 4]: begin and duration in ns, stage, argument."""

    name: str
    pid: int
    spans: np.ndarray
    lost: int = 0


@dataclass
class Flow:
    """Trajectories that a worker put with one copy, and the learner took."""

    worker: int  # index into tracks
    copied: int  # index of the span
    viewed: int  # index of the learner's span
    begin: int  # place in the queue
    count: int


@dataclass
class Trace:
    tracks: list[Track]  # the learner's first
    copies_per_trajectory: float
    flows: list[Flow] = field(default_factory=list)


def record(
    writable: _core.RunBoard,
    board: _core.RunBoard,
    seconds: float,
    check: Callable[[], None],
) -> Trace:
    """Switches tracing on for some seconds and takes what is traced."""
    rows: list[int | None] = [None, *range(len(board))]
    # What lies there from before is not of now.
    places = {row: _core.board_spans(board, row, 0)[0] for row in rows}
    parts: dict[int | None, list[bytes]] = {row: [] for row in rows}
    lost = dict.fromkeys(rows, 0)
    before = boards.read(board, histograms=False)
    _core.set_tracing(writable, True)
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(_DRAIN_S)
            check()
            for row in rows:
                places[row], gone, spans = _core.board_spans(board, row, places[row])
                parts[row].append(spans)
                lost[row] += gone
    finally:
        _core.set_tracing(writable, False)
    after = boards.read(board, histograms=False)
    pids = {row.index: row.pid for row in after.rows}
    tracks = [
        Track(
            "learner" if row is None else f"worker {row}",
            pids[row],
            np.frombuffer(b"".join(parts[row]), np.uint64).reshape(-1, 4),
            lost[row],
        )
        for row in rows
    ]
    window = boards.between(before, after)
    # Into the queue once; out of it only what had to be gathered.
    return Trace(tracks, 1.0 + window.gathered_share, find_flows(tracks))


def find_flows(tracks: list[Track]) -> list[Flow]:
    """Pairs every copy with the batches that its places were in."""
    learner = tracks[0].spans
    views = [
        (int(argument) >> 16, (int(argument) >> 16) + (int(argument) & 0xFFFF), i)
        for i, (_, _, stage, argument) in enumerate(learner)
        if stage == BATCH_VIEW and int(argument) & 0xFFFF
    ]
    views.sort()
    begins = [view[0] for view in views]
    flows = []
    for worker, track in enumerate(tracks[1:], 1):
        for copied, (_, _, stage, argument) in enumerate(track.spans):
            count = int(argument) & 0xFFFF
            if stage != COPY or count == 0:
                continue
            begin = int(argument) >> 16
            at = max(0, int(np.searchsorted(begins, begin, "right")) - 1)
            for first, end, viewed in views[at:]:
                if first >= begin + count:
                    break
                if end > begin:
                    common = min(end, begin + count) - max(first, begin)
                    flows.append(Flow(worker, copied, viewed, max(first, begin), common))
    return flows


def events(trace: Trace) -> list[dict[str, Any]]:
    """Chrome's trace events."""
    found: list[dict[str, Any]] = []
    for place, track in enumerate(trace.tracks):
        at = {"pid": track.pid, "tid": track.pid}
        for name, value in (
            ("process_name", {"name": track.name}),
            ("process_sort_index", {"sort_index": place}),
        ):
            found.append({"ph": "M", "name": name, "args": value} | at)
        for begin, duration, stage, argument in track.spans.tolist():
            found.append(
                {
                    "ph": "X",
                    "name": STAGES[stage],
                    "cat": "learner" if place == 0 else "worker",
                    "ts": begin / 1000,
                    "dur": duration / 1000,
                    "args": _arguments(stage, argument),
                }
                | at
            )
    for number, flow in enumerate(trace.flows):
        common = {"name": "trajectories", "cat": "flow", "id": number}
        # The learner may be at a batch before the worker's copy is over: its last place was ready a little
        # earlier. So the arrow leads from where the copy begins to where the look at the batch ends.
        ends = (("s", flow.worker, flow.copied, 0), ("f", 0, flow.viewed, 1))
        for kind, place, span, whole in ends:
            track = trace.tracks[place]
            begin, duration = (int(word) for word in track.spans[span][:2])
            arrow = {"ph": kind, "pid": track.pid, "tid": track.pid, "ts": (begin + whole * duration) / 1000}
            # "e": it ends in the slice around it, not in the next one.
            found.append(common | arrow | ({"bp": "e"} if kind == "f" else {}))
    return found


def write(trace: Trace, path: Path) -> None:
    """Raises OSError."""
    document = {
        "traceEvents": events(trace),
        "displayTimeUnit": "ns",
        "otherData": {
            "copies_per_trajectory": trace.copies_per_trajectory,
            "spans_lost": {track.name: track.lost for track in trace.tracks},
        },
    }
    path.write_text(json.dumps(document, separators=(",", ":")))


def _arguments(stage: int, argument: int) -> dict[str, int]:
    if stage in (COPY, BATCH_VIEW) and argument & 0xFFFF:
        return {"trajectories": argument & 0xFFFF, "first_place": argument >> 16}
    if stage in (PARAMETERS, PUBLISH) and argument:
        return {"version": argument}
    return {}
