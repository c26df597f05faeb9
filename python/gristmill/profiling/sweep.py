"""`gristmill profile --sweep`: a configuration under a grid of settings; the fastest is written down."""

from __future__ import annotations

import html
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gristmill import _core
from gristmill.profiling import measure, svg

if TYPE_CHECKING:
    from rich.table import Table

_MOST = 400


@dataclass
class Axis:
    key: str
    values: list[str]


@dataclass
class Point:
    """One setting of the grid. profile None: it cannot be; `error` says why."""

    settings: dict[str, str]
    profile: measure.Profile | None = None
    error: str = ""

    @property
    def frames_per_s(self) -> float:
        return self.profile.whole.frames_per_s if self.profile else 0.0

    @property
    def overrides(self) -> list[str]:
        return [f"{key}={value}" for key, value in self.settings.items()]


def split_values(text: str) -> list[str]:
    """At commas that are outside brackets and braces: "[64,64],[128]" are two."""
    values, depth = [""], 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if character == "," and depth == 0:
            values.append("")
        else:
            values[-1] += character
    return [value.strip() for value in values]


def axes_of(words: Sequence[str]) -> list[Axis]:
    """Of "key=value,value,…". Raises ConfigError for an unknown key, a wrong value, or too many."""
    axes: list[Axis] = []
    for word in words:
        key, equals, text = word.partition("=")
        values = split_values(text)
        if not equals or not all(values):
            raise _core.ConfigError(f"--sweep {word}: expected key=value,value,… such as workers.count=1,2,4")
        if any(axis.key == key for axis in axes):
            raise _core.ConfigError(f"--sweep {word}: {key} is there twice")
        for value in values:
            _core.check_override(f"{key}={value}")
        axes.append(Axis(key, values))
    points = 1
    for axis in axes:
        points *= len(axis.values)
    if points > _MOST:
        raise _core.ConfigError(f"--sweep: {points} settings; expected at most {_MOST}")
    return axes


def sweep(
    config: str,
    overrides: Sequence[str],
    axes: Sequence[Axis],
    seconds: float,
    warmup: float,
    say: Callable[[str], None],
) -> list[Point]:
    """Measures every setting in turn. One that contradicts itself, or fails, does not end the sweep."""
    points = []
    keys = [axis.key for axis in axes]
    grid = list(itertools.product(*(axis.values for axis in axes)))
    for number, values in enumerate(grid, 1):
        point = Point(dict(zip(keys, values, strict=True)))
        say(f"{number} of {len(grid)}: {' '.join(point.overrides)}")
        try:
            point.profile = measure.profile(config, [*overrides, *point.overrides], seconds, warmup)
            say(f"  {point.frames_per_s:,.0f} frames/s, {point.profile.diagnosis.bound}-bound")
        except (_core.ConfigError, RuntimeError) as error:
            point.error = str(error)
            say(f"  not measured: {error}")
        points.append(point)
    return points


def best(points: Sequence[Point]) -> Point | None:
    measured = [point for point in points if point.profile]
    return max(measured, key=lambda point: point.frames_per_s, default=None)


def write_best(config: str, overrides: Sequence[str], point: Point, path: Path) -> None:
    """A config file with every option, as measured. Raises OSError."""
    resolved = _core.load_config(config, [*overrides, *point.overrides])
    head = f"# The fastest of a sweep: {' '.join(point.overrides)}, {point.frames_per_s:,.0f} frames/s.\n\n"
    path.write_text(head + resolved.dump(with_help=True), encoding="utf-8")


def verdict(points: Sequence[Point]) -> str:
    """One sentence for people."""
    first = best(points)
    if first is None:
        return "No setting could be measured."
    others = sorted((p.frames_per_s for p in points if p.profile and p is not first), reverse=True)
    ahead = f", {first.frames_per_s / others[0]:.2f} × the next" if others and others[0] > 0 else ""
    close = (
        " (within what one measurement varies)" if others and first.frames_per_s < 1.05 * others[0] else ""
    )
    return f"Fastest: {' '.join(first.overrides)} with {first.frames_per_s:,.0f} frames/s{ahead}{close}."


def table(points: Sequence[Point], axes: Sequence[Axis]) -> Table:
    from rich.table import Table

    result = Table(title="frames/s of each setting")
    for axis in axes:
        result.add_column(axis.key, justify="right")
    result.add_column("frames/s", justify="right")
    result.add_column("bound by")
    result.add_column("")
    first = best(points)
    for point in points:
        cells = [point.settings[axis.key] for axis in axes]
        if point.profile is None:
            result.add_row(*cells, "–", point.error.splitlines()[0][:60])
            continue
        share = point.frames_per_s / max(first.frames_per_s, 1e-9) if first else 0
        result.add_row(
            *cells,
            f"{point.frames_per_s:,.0f}",
            point.profile.diagnosis.bound,
            "█" * round(share * 24),
            style="bold" if point is first else None,
        )
    return result


def page(name: str, points: Sequence[Point], axes: Sequence[Axis]) -> str:
    """One page that opens without a network."""
    rows = []
    for point in points:
        cells = [point.settings[axis.key] for axis in axes]
        cells += [
            f"{point.frames_per_s:,.0f}",
            point.profile.diagnosis.sentence if point.profile else point.error,
        ]
        rows.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    head = [axis.key for axis in axes] + ["frames/s", ""]
    names = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    bars = [
        (" ".join(point.settings.values()), round(point.frames_per_s)) for point in points if point.profile
    ]
    title = html.escape(f"sweep of {name}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>'
        "body{font:15px/1.5 system-ui,sans-serif;max-width:980px;margin:32px auto;padding:0 20px}"
        "table{border-collapse:collapse}td,th{padding:3px 14px 3px 0;text-align:left;"
        "border-bottom:1px solid #eee;vertical-align:top}svg text{font:12px system-ui,sans-serif}"
        f"</style></head><body><h1>{title}</h1><p>{html.escape(verdict(points))}</p>"
        f"{svg.bar_chart(bars, '#3b82c4', 'frames/s')}<table><tr>{names}</tr>{''.join(rows)}</table>"
        "</body></html>\n"
    )


def plot(points: Sequence[Point], axes: Sequence[Axis], path: Path) -> None:
    """Lines over the first axis, one for each setting of the others. Needs matplotlib (the bench extra)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    first, others = axes[0], axes[1:]
    lines: dict[str, list[tuple[int, float]]] = {}
    for point in points:
        if point.profile:
            label = " ".join(f"{axis.key}={point.settings[axis.key]}" for axis in others) or "frames/s"
            lines.setdefault(label, []).append(
                (first.values.index(point.settings[first.key]), point.frames_per_s)
            )
    figure, axis = plt.subplots(figsize=(7.5, 4.5), layout="constrained")
    for label, line in lines.items():
        axis.plot(*zip(*line, strict=True), marker="o", label=label)
    axis.set_xticks(range(len(first.values)), first.values)
    axis.set_xlabel(first.key)
    axis.set_ylabel("frames/s")
    axis.set_ylim(bottom=0)
    axis.spines[["top", "right"]].set_visible(False)
    if others:
        axis.legend(fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def document(points: Sequence[Point]) -> dict[str, Any]:
    from gristmill.profiling.text import document as one

    first = best(points)
    return {
        "best": first.settings if first else None,
        "points": [
            {"settings": point.settings, "error": point.error or None}
            | ({"profile": one(point.profile)} if point.profile else {})
            for point in points
        ],
    }
