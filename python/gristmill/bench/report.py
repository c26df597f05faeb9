"""The table, the ratios and the plot of `gristmill bench train`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from gristmill.bench.train import Contestant


def fps(contestant: Contestant) -> list[float]:
    return [run["fps"] for run in contestant.runs]


def seconds_to_solve(contestant: Contestant) -> list[float]:
    """Of the runs that were solved; from launch."""
    return [run["solved_at_s"] for run in contestant.runs if run.get("solved_at_s")]


def one_run(result: dict[str, Any]) -> str:
    solved = result.get("solved_at_s")
    reached = f"475 after {solved:.2f} s" if solved else f"475 not reached (mean {result['mean_return']:.0f})"
    return f"{result['fps']:,.0f} frames/s, {reached}"


def _spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return "–"
    low, high = min(values), max(values)
    return f"{median(values):,.{digits}f}\n({low:,.{digits}f} – {high:,.{digits}f})"


def ratios(contestants: list[Contestant]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Of medians, for each of ours against each peer: how many times the frames/s, and how many times sooner.

    None where either has no figure.
    """

    def ratio(above: list[float], below: list[float]) -> float | None:
        return median(above) / median(below) if above and below else None

    return {
        a.key: {
            b.key: {
                "frames_per_s": ratio(fps(a), fps(b)),
                "sooner": ratio(seconds_to_solve(b), seconds_to_solve(a)),
            }
            for b in contestants
            if not b.ours
        }
        for a in contestants
        if a.ours
    }


def table(contestants: list[Contestant], repeats: int) -> Table:
    """Median (least – most) of each figure; ratios against each peer as "frames/s × · sooner ×"."""
    from rich.table import Table

    peers = [c for c in contestants if not c.ours]
    result = Table(title=f"CartPole-v1, learner running: median (least – most) of {repeats}")
    result.add_column("", no_wrap=True)
    result.add_column("frames/s", justify="right")
    result.add_column("return 475\nafter launch, s", justify="right")
    result.add_column("reached", justify="right")
    result.add_column("first step\nafter launch, s", justify="right")
    for peer in peers:
        result.add_column(f"against\n{peer.title.split(' 2.')[0]}", justify="right")
    against = ratios(contestants)
    for c in contestants:
        if c.missing:
            result.add_row(c.title, f"missing: {c.missing}")
            continue
        cells = [c.title, _spread(fps(c), 0), _spread(seconds_to_solve(c), 2)]
        cells.append(f"{len(seconds_to_solve(c))} of {repeats}")
        first = [run["launch_to_first_step_s"] for run in c.runs]
        cells.append(f"{median(first):.2f}" if first else "–")
        if c.ours:
            cells += [_ratio_cell(against[c.key][peer.key]) for peer in peers]
        result.add_row(*cells)
    return result


def _ratio_cell(ratio: dict[str, float | None]) -> str:
    def times(value: float | None) -> str:
        return f"{value:.1f}×" if value is not None else "–"

    return f"{times(ratio['frames_per_s'])} frames/s\n{times(ratio['sooner'])} sooner"


def plot(contestants: list[Contestant], path: Path) -> None:
    """Two bars for each contestant with the spread of its runs. Needs matplotlib (the bench extra)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = [c for c in contestants if c.runs][::-1]
    figure, axes = plt.subplots(1, 2, figsize=(11, 0.7 * len(shown) + 1.6), layout="constrained")
    panels = (
        (axes[0], "seconds from launch to a mean return of 475", seconds_to_solve, "{:.1f}", False),
        (axes[1], "frames/s while learning (logarithmic)", fps, "{:,.0f}", True),
    )
    for axis, title, figures, form, logarithmic in panels:
        for row, contestant in enumerate(shown):
            values = figures(contestant)
            if not values:
                axis.annotate("not reached", (0, row), (6, 0), textcoords="offset points", va="center")
                continue
            middle = median(values)
            spread = [[middle - min(values)], [max(values) - middle]]
            color = "#2a78b5" if contestant.ours else "#b0b0b0"
            axis.barh(row, middle, xerr=spread, color=color, ecolor="#404040", capsize=3)
            axis.annotate(
                form.format(middle), (max(values), row), (6, 0), textcoords="offset points", va="center"
            )
        axis.set_title(title, fontsize=11)
        axis.set_yticks(range(len(shown)), [c.title for c in shown] if axis is axes[0] else [""] * len(shown))
        axis.spines[["top", "right"]].set_visible(False)
        if logarithmic:
            axis.set_xscale("log")
        axis.margins(x=0.15)
        axis.set_ylim(-0.5, len(shown) - 0.5)
    figure.savefig(path, dpi=150)
    plt.close(figure)
