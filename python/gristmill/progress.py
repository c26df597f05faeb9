"""A run shown to people: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time

from gristmill.console import interruptible, printable, styled
from gristmill.training import Reporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TextIO


class Progress(Reporter):
    """Plain lines."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self._total = 0
        self._begin: tuple[float, float] | None = None  # time and frames of the first figures

    def started(self, run_dir: str, values: Mapping[str, Any]) -> None:
        self._total = values["train.total_frames"]
        workers, each = values["workers.count"], values["workers.envs_per_worker"]
        self.say(
            f"{run_dir}: {values['learner.algorithm']} on {values['env.id']}, "
            f"{workers} worker{'s' * (workers != 1)} x {each} environment{'s' * (each != 1)}"
        )

    def metrics(self, metrics: Mapping[str, float]) -> None:
        self.say("  ".join(f"{name} {value}" for name, value in self._figures(metrics).items()))

    def event(self, event: Any) -> None:
        # What made the pool give up is the run's error, which is told at its end.
        if event.kind not in ("started", "gave_up"):
            self.say(event.message)

    def message(self, text: str) -> None:
        self.say(text)

    def log(self, level: int, text: str) -> None:
        self.say(text)

    def closing(self) -> None:
        interruptible.hold()

    def say(self, text: str, style: str = "") -> None:
        """One line, of anybody's text, in an ANSI style. A reader that is gone does not end the run."""
        text = printable(text)
        try:
            print(styled(text, style, self.stream) if style else text, file=self.stream, flush=True)
        except OSError:
            pass

    def _figures(self, metrics: Mapping[str, float]) -> dict[str, str]:
        frames = metrics.get("time/total_timesteps", 0)
        shown = {
            "frames": f"{frames:,.0f}",
            "frames/s": f"{metrics.get('time/fps', 0):,.0f}",
            "return": _figure(metrics, "rollout/ep_rew_mean", ".1f"),
            "length": _figure(metrics, "rollout/ep_len_mean", ".0f"),
            "lag": _figure(metrics, "train/policy_lag", ".1f"),
            "queue": _figure(metrics, "queue/fill", ".0%"),
        }
        if (left := self._left(frames)) is not None:
            shown["left"] = left
        return shown

    def _left(self, frames: float) -> str | None:
        """Time until train.total_frames at this launch's pace."""
        now = time.monotonic()
        if self._begin is None:
            self._begin = (now, frames)
            return None
        begin, first = self._begin
        if frames <= first or now <= begin:
            return None
        seconds = int(max(0.0, self._total - frames) * (now - begin) / (frames - first))
        hours, minutes = seconds // 3600, seconds // 60 % 60
        return f"{hours}:{minutes:02}:{seconds % 60:02}" if hours else f"{minutes}:{seconds % 60:02}"


class LiveProgress(Progress):
    """One line of figures that is rewritten in place; events scroll by above it."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._live: Any = None

    def metrics(self, metrics: Mapping[str, float]) -> None:
        # rich is imported when there is something to show, not before the workers start.
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        grid = Table.grid(padding=(0, 2))
        frames = metrics.get("time/total_timesteps", 0)
        figures = self._figures(metrics)
        grid.add_row(*(f"[dim]{name}[/] [bold]{value}[/]" for name, value in figures.items()))
        whole = Table.grid()
        whole.add_row(ProgressBar(total=max(1, self._total), completed=min(frames, self._total), width=60))
        whole.add_row(grid)
        self._show(whole)

    def ended(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str, style: str = "") -> None:
        if self._live is None:
            super().say(text, style)
        else:
            self._live.console.print(printable(text), markup=False, highlight=False, emoji=False)

    def _show(self, renderable: Any) -> None:
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=self.stream), auto_refresh=False)
            self._live.start()
        self._live.update(renderable, refresh=True)


def progress_for(stream: TextIO) -> Progress:
    """Live on a terminal."""
    return LiveProgress(stream) if stream.isatty() else Progress(stream)


def _figure(metrics: Mapping[str, float], name: str, form: str) -> str:
    return format(metrics[name], form) if name in metrics else "-"
