"""Learning curves of several runs: mean and spread over their seeds, as PNG and HTML."""

from __future__ import annotations

import base64
import dataclasses
import html
import io
import json
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from gristmill import _core

RETURN = "rollout/ep_rew_mean"
FRAMES = "time/total_timesteps"
AXES = {"frames": "environment steps", "seconds": "seconds"}
_POINTS = 400
# Options in a curve's label; runs that differ in more are no sweep's.
_MOST_DIFFERENCES = 4


@dataclasses.dataclass
class Curve:
    """One run's: x ascending, y of the same length."""

    run: Path
    config: dict[str, str]
    x: np.ndarray
    y: np.ndarray


@dataclasses.dataclass
class Group:
    """Runs that differ in their seeds alone."""

    label: str
    curves: list[Curve]

    def band(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(x, mean, deviation) over the part that every run has reached."""
        low = max(curve.x[0] for curve in self.curves)
        high = min(curve.x[-1] for curve in self.curves)
        x = np.linspace(low, max(high, low), _POINTS)
        rows = np.stack([np.interp(x, curve.x, curve.y) for curve in self.curves])
        return x, rows.mean(0), rows.std(0)


def find_runs(given: Iterable[str | Path]) -> list[Path]:
    """The runs named: each a run's folder, its name under runs/, or a folder with runs in it (a sweep's).
    Raises ConfigError for what is none of these, or has no figures."""
    found: list[Path] = []
    for word in given:
        candidates = [path for path in (Path(word), Path("runs") / word) if path.is_dir()]
        if not candidates:
            raise _core.ConfigError(f"{word}: no run there; expected a run's folder, or one with runs in it")
        inside = [file.parent for file in sorted(candidates[0].glob("**/metrics.jsonl"))]
        if not inside:
            raise _core.ConfigError(f"{word}: no metrics.jsonl in it: no run, or one that has no figures yet")
        found += [path for path in inside if path not in found]
    return found


def read_curve(run: Path, metric: str = RETURN, x: str = "frames") -> Curve:
    """Raises ConfigError when the run has no such figure."""
    points: list[tuple[float, float]] = []
    known: set[str] = set()
    began: float | None = None
    for line in (run / "metrics.jsonl").read_text().splitlines():
        try:
            figures = json.loads(line)
        except ValueError:
            continue  # cut off by a crash
        known.update(figures)
        began = figures["wall_time"] if began is None else began
        elapsed = figures.get("time/time_elapsed", figures["wall_time"] - began)
        at = figures.get(FRAMES) if x == "frames" else elapsed
        value = figures.get(metric)
        if at is None or value is None:
            continue
        # A run that went on from a checkpoint steps over what came after it once more.
        while points and points[-1][0] >= at:
            points.pop()
        points.append((at, value))
    if not points:
        near = ", ".join(sorted(known - {"wall_time"})) or "nothing"
        raise _core.ConfigError(f"{run}: no figures called {metric}; there are {near}")
    columns = np.array(points, dtype=float)
    return Curve(run, _options(run), columns[:, 0], columns[:, 1])


def grouped(curves: list[Curve]) -> list[Group]:
    """By everything but seed and place; labelled by what they differ in, or, where that is much, by a run's
    name."""
    groups: dict[str, list[Curve]] = {}
    for curve in curves:
        groups.setdefault(json.dumps(curve.config, sort_keys=True), []).append(curve)
    configs = [members[0].config for members in groups.values()]
    keys = [k for k in sorted(set().union(*configs)) if len({c.get(k) for c in configs}) > 1]

    def label(members: list[Curve]) -> str:
        if not keys and len(members) > 1:
            return members[0].config.get("env.id", "runs")
        if not 0 < len(keys) <= _MOST_DIFFERENCES:
            return members[0].run.resolve().name
        return ", ".join(f"{key} = {members[0].config.get(key, '–')}" for key in keys)

    return [Group(label(members), members) for members in groups.values()]


def draw(groups: list[Group], metric: str = RETURN, x: str = "frames") -> Any:
    """A matplotlib Figure. Raises ConfigError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise _core.ConfigError(f'plots need matplotlib: pip install "gristmill[bench]" ({error})') from None
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for i, group in enumerate(groups):
        at, mean, deviation = group.band()
        colour = f"C{i % 10}"
        for curve in group.curves:
            axes.plot(curve.x, curve.y, color=colour, alpha=0.25, linewidth=0.8)
        count = len(group.curves)
        # "$" would begin a formula, and a leading "_" hide the curve.
        label = group.label.replace("$", r"\$").lstrip("_")
        label = textwrap.fill(f"{label} ({count} run{'s' if count > 1 else ''})", 80)
        axes.plot(at, mean, color=colour, label=label)
        if count > 1:
            axes.fill_between(at, mean - deviation, mean + deviation, color=colour, alpha=0.2, linewidth=0)
    axes.set_xlabel(AXES[x])
    axes.set_ylabel("mean return of 100 episodes" if metric == RETURN else metric)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()


def page(figure: Any, groups: list[Group]) -> str:
    """One HTML file that needs nothing else: the picture and a table."""
    rows = []
    for group in groups:
        last = [float(curve.y[-1]) for curve in group.curves]
        best = [float(curve.y.max()) for curve in group.curves]
        spread = f"{np.mean(last):,.2f} ± {np.std(last):,.2f}"
        runs = "<br>".join(html.escape(str(curve.run)) for curve in group.curves)
        cells = [html.escape(group.label), str(len(last)), spread, f"{max(best):,.2f}", runs]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    picture = base64.b64encode(png(figure)).decode()
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Learning curves</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; color: #222 }}
img {{ max-width: 100% }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ border-bottom: 1px solid #ddd; padding: .4rem .6rem; text-align: left; vertical-align: top }}
td:last-child {{ font: 12px/1.5 ui-monospace, monospace; color: #555 }}
</style></head><body>
<h1>Learning curves</h1>
<p>Lines are means over the runs of a setting as far as all of them have come, bands one standard deviation,
thin lines the runs themselves.</p>
<img alt="Learning curves" src="data:image/png;base64,{picture}">
<table><thead><tr><th>Setting</th><th>Runs</th><th>Last</th><th>Best</th><th>Folders</th></tr></thead>
<tbody>
{"".join(rows)}
</tbody></table>
</body></html>
"""


def plot(
    runs: Iterable[str | Path], output: str | Path, metric: str = RETURN, x: str = "frames"
) -> list[Path]:
    """Writes FILE.png or FILE.html, or both when `output` has neither ending; returns what was written."""
    if x not in AXES:
        raise _core.ConfigError(f"x is {x}; expected one of: {', '.join(AXES)}")
    groups = grouped([read_curve(run, metric, x) for run in find_runs(runs)])
    figure = draw(groups, metric, x)
    output = Path(output)
    wanted = (
        [output] if output.suffix in (".png", ".html") else [Path(f"{output}{s}") for s in (".png", ".html")]
    )
    for path in wanted:
        if path.suffix == ".png":
            path.write_bytes(png(figure))
        else:
            path.write_text(page(figure, groups), encoding="utf-8")
    return wanted


def _options(run: Path) -> dict[str, str]:
    """What makes a run's result, by dotted key: neither the seed nor where its files lie."""
    try:
        values = _core.load_config(str(run / "config.yaml")).values
    except _core.ConfigError:
        return {"run": run.name}  # of another version: a group of its own
    return {
        k: str(v)
        for k, v in values.items()
        if k != "seed" and not k.startswith(("run.", "log.", "checkpoint."))
    }
