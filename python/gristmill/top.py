"""`gristmill top`: running jobs seen from another terminal. Boards are mapped for reading alone: no run is
disturbed."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gristmill import _core
from gristmill.console import FAILED, OK, failed
from gristmill.profiling import board as boards
from gristmill.profiling.histogram import quantile
from gristmill.profiling.own_loop import settings

if TYPE_CHECKING:
    from rich.console import RenderableType

_INTERVAL_S = 1.0


@dataclass
class Watched:
    """One run: its board, and how it was at the last two looks."""

    name: str
    pid: int
    board: _core.RunBoard
    values: dict[str, Any]
    before: boards.Snapshot
    now: boards.Snapshot

    @classmethod
    def open(cls, segment: _core.SegmentInfo) -> Watched | None:
        """None: it is no run, or has just ended."""
        try:
            board = _core.watch_board(segment.name, 0.0)
            text = board.config
            if not text:
                return None
            values = _core.parse_config(text, segment.name, []).values
        except (RuntimeError, ValueError):
            return None
        now = boards.read(board)
        return cls(_run_name(segment.name), segment.pid, board, values, now, now)

    @property
    def settings(self) -> dict[str, Any]:
        """Its options, or what a loop of the user's own has of them."""
        return settings(self.values, self.now.learner.description)

    def look(self) -> None:
        self.before, self.now = self.now, boards.read(self.board)

    @property
    def window(self) -> boards.Window:
        return boards.between(self.before, self.now)


def watched_runs(name: str | None) -> list[Watched]:
    """Every run of this user that goes on, or those that `name` names: a run's name, its folder, or the pid
    of its learner."""
    wanted = name.rstrip("/").rpartition("/")[2] if name else None
    runs = []
    for segment in _core.list_segments():
        if segment.dead or not segment.name.endswith(".board"):
            continue
        if wanted and wanted not in (_run_name(segment.name), str(segment.pid)):
            continue
        if (run := Watched.open(segment)) is not None:
            runs.append(run)
    return runs


def top(name: str | None, once: bool, as_json: bool, interval: float = _INTERVAL_S) -> int:
    """Returns the exit code."""
    runs = watched_runs(name)
    if not runs:
        found = f"no run called {name} goes on" if name else "no run goes on"
        if as_json and once:
            print("[]")
        return failed(f"{found}; start one with: gristmill train configs/cartpole.yaml", FAILED)
    if once or as_json:
        time.sleep(interval)
        for run in runs:
            run.look()
        if as_json:
            print(json.dumps([document(run) for run in runs]))
        else:
            _console().print(view(runs))
        return OK
    _show_live(name, interval)
    return OK


def _show_live(name: str | None, interval: float) -> None:
    from rich.live import Live

    known: dict[str, Watched] = {}
    with Live(console=_console(), screen=sys.stdout.isatty(), auto_refresh=False) as live:
        while True:
            found = {run.board.name: run for run in watched_runs(name)}
            known = {key: known.get(key, run) for key, run in found.items()}
            if not known:
                break
            live.update(view(list(known.values())), refresh=True)
            time.sleep(interval)
            for run in known.values():
                run.look()
    print("no run goes on any more")


def _console() -> Any:
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=110)


def view(runs: list[Watched]) -> RenderableType:
    """A panel for each run."""
    from rich.console import Group

    return Group(*(_panel(run) for run in runs))


def _panel(run: Watched) -> RenderableType:
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    window, values, learner = run.window, run.settings, run.now.learner
    capacity = values["queue.capacity"]
    lag = quantile(window.policy_lag, 0.5)
    head = Table.grid(padding=(0, 3))
    for line in (
        (
            ("frames/s", f"{window.frames_per_s or window.acted_per_s:,.0f}"),
            ("frames", f"{_frames(run):,}"),
            ("return", f"{learner.mean_return:.1f}" if learner.counters["mean_return"] else "–"),
            ("version", str(_version(run))),
        ),
        (
            ("queue", f"{run.now.queue_size} of {capacity} {_bar(run.now.queue_size / capacity, 10)}"),
            ("policy lag", "–" if lag != lag else f"{lag:.0f}"),
            ("restarts", str(run.now.restarts)),
            ("cores", f"{window.learner.cpu + window.workers.cpu:.1f}"),
        ),
    ):
        head.add_row(*(Text.assemble((name + " ", "dim"), (value, "bold")) for name, value in line))

    table = Table(box=None, padding=(0, 2), header_style="dim")
    for name in ("", "pid", "state"):
        table.add_column(name, no_wrap=True)
    table.add_column("frames/s", justify="right")
    table.add_column("where its time goes", ratio=1)
    for before, now in zip(run.before.rows, run.now.rows, strict=True):
        if now.phase == "empty":
            continue  # a loop of the user's own that has not begun
        one = boards.between(
            boards.Snapshot(run.before.time_s, before, [before]), boards.Snapshot(run.now.time_s, now, [now])
        )
        process = one.learner if now.index is None else one.workers
        rate = one.frames_per_s if now.index is None else one.acted_per_s
        silent = f" silent {now.since_beat_s:.0f} s" if now.since_beat_s > 2 else ""
        style = "red" if now.phase in ("failed", "fatal") or silent else "green"
        table.add_row(
            now.name,
            str(now.pid or ""),
            Text(now.phase + silent, style),
            f"{rate:,.0f}",
            _stage_words(process),
        )
    title = Text.assemble((run.name, "bold"), f"  {values['learner.algorithm']} on {values['env.id']}  ")
    title.append(f"(learner's pid {run.pid})", "dim")
    return Panel(Group(head, Text(), table), title=title, title_align="left")


def _stage_words(process: boards.Process) -> str:
    """The largest stages, waiting last."""
    from gristmill.profiling.text import TITLES

    stages = sorted(process.stages, key=lambda stage: -stage.share)[:3]
    return "  ".join(f"{TITLES[stage.name]} {stage.share:.0%}" for stage in stages if stage.share >= 0.005)


def _frames(run: Watched) -> int:
    """Of this launch."""
    return run.now.learner.counters["frames"] or sum(row.counters["frames"] for row in run.now.workers)


def _version(run: Watched) -> int:
    return max(row.counters["version"] for row in run.now.rows)


def _bar(share: float, width: int) -> str:
    full = round(max(0.0, min(1.0, share)) * width)
    return "█" * full + "░" * (width - full)


def document(run: Watched) -> dict[str, Any]:
    """As JSON, over the last interval."""
    window, now, values = run.window, run.now, run.settings
    lag = quantile(window.policy_lag, 0.5)
    return {
        "run": run.name,
        "pid": run.pid,
        "board": run.board.name,
        "env": values["env.id"],
        "algorithm": values["learner.algorithm"],
        "frames": _frames(run),
        "frames_per_s": window.frames_per_s or window.acted_per_s,
        "mean_return": now.learner.mean_return if now.learner.counters["mean_return"] else None,
        "version": _version(run),
        "policy_lag": None if lag != lag else lag,
        "queue_size": now.queue_size,
        "queue_capacity": values["queue.capacity"],
        "restarts": now.restarts,
        "space_wait_share": window.workers.share("space_wait"),
        "batch_wait_share": window.learner.share("batch_wait"),
        "processes": [
            {
                "name": row.name,
                "pid": row.pid,
                "phase": row.phase,
                "since_beat_s": row.since_beat_s,
                "frames": row.counters["frames"],
                "restarts": row.incarnation,
            }
            for row in now.rows
            if row.phase != "empty"
        ],
    }


def _run_name(board: str) -> str:
    """ "/gristmill.<owner>.<run>-<n>.board": the run's name."""
    return board.split(".", 2)[2].rpartition(".")[0].rpartition("-")[0]
