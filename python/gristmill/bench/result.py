"""What every benchmark writes: each contestant's figures, the ratios with their spread, the machine.

One form for all, so that two of them can be compared, drawn and put on a page:

    {"format": "gristmill-bench/1", "bench": "pipeline", "machine": {…}, "load": 0.1, "when": "2026-…",
     "measurements": [{"test", "contestant", "ours", "unit", "less_is_better", "values": […], "missing": ""}],
     "ratios": [{"test", "ours", "against": […], "ratio", "low", "high", "target", "met"}],
     "details": {…}}

Values are those of the repeats, in order: the contestants took turns, so that values[i] of two of them were
measured next to each other.
"""

from __future__ import annotations

import html
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from gristmill.bench import machine

if TYPE_CHECKING:
    from rich.table import Table

FORMAT = "gristmill-bench/1"


@dataclass
class Measurement:
    """One contestant in one test. No values: `missing` says why."""

    test: str
    contestant: str
    ours: bool
    unit: str
    less_is_better: bool
    values: list[float] = field(default_factory=list)
    missing: str = ""


@dataclass
class Ratio:
    """How many times as good `ours` is as the best of `against`, by medians, and over the repeats."""

    test: str
    ours: str
    against: list[str]
    ratio: float | None
    low: float | None
    high: float | None
    target: float | None = None
    met: bool | None = None


@dataclass
class Report:
    bench: str
    measurements: list[Measurement]
    ratios: list[Ratio] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=machine.describe)
    load: float = field(default_factory=lambda: os.getloadavg()[0])
    when: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%S%z"))

    def find(self, test: str, contestant: str) -> Measurement | None:
        found = (m for m in self.measurements if m.test == test and m.contestant == contestant)
        return next(found, None)

    def compare(self, test: str, ours: str, against: Sequence[str], target: float | None = None) -> Ratio:
        """Adds the ratio. None where either has no figure."""
        mine = self.find(test, ours)
        peers = [m for name in against if (m := self.find(test, name)) is not None and m.values]
        made = Ratio(test, ours, list(against), None, None, None, target)
        if mine is not None and mine.values and peers:
            times = [_ratio(mine, peer) for peer in peers]
            made.ratio, made.low, made.high = min(times, key=lambda t: t[0])
            if target is not None:
                made.met = made.ratio >= target
        self.ratios.append(made)
        return made

    def document(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.document(), indent=2) + "\n", encoding="utf-8")


def read(path: Path) -> Report:
    """Raises ValueError for a file that is none of ours."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
        raise ValueError(f'{path}: not a report of `gristmill bench`: expected "format": "{FORMAT}"')
    try:
        document["measurements"] = [Measurement(**m) for m in document["measurements"]]
        document["ratios"] = [Ratio(**r) for r in document["ratios"]]
        return Report(**document)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: a damaged report: {error}") from None


def _ratio(mine: Measurement, peer: Measurement) -> tuple[float, float, float]:
    """Of medians; least and most of the repeats that were measured next to each other."""

    def better(a: float, b: float) -> float:
        return (b / a if a else float("inf")) if mine.less_is_better else (a / b if b else float("inf"))

    pairs = [better(a, b) for a, b in zip(mine.values, peer.values, strict=False)]
    return better(median(mine.values), median(peer.values)), min(pairs), max(pairs)


def figure_text(value: float, unit: str) -> str:
    """For people: 1.23 µs, 45.6 M messages/s, 12.3 GB/s."""
    if unit == "s":
        for name, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
            if value >= size:
                return f"{value / size:.3g} {name}"
        return f"{value * 1e9:.3g} ns"
    for name, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return (
                f"{value / size:.3g} {name}{unit}" if unit == "B/s" else f"{value / size:.3g} {name} {unit}"
            )
    return f"{value:.3g} {unit}"


def table(report: Report) -> Table:
    """Median (least – most) of each contestant in each test, and ours against the best of the others."""
    from rich.table import Table

    made = Table(title=f"gristmill bench {report.bench}: median (least – most)")
    for name in ("test", "contestant"):
        made.add_column(name)
    made.add_column("median", justify="right")
    made.add_column("least – most", justify="right")
    made.add_column("ratios (least – most)")
    for test in dict.fromkeys(m.test for m in report.measurements):
        title = test
        for m in (m for m in report.measurements if m.test == test):
            found = [r for r in report.ratios if r.test == test and r.ours == m.contestant]
            made.add_row(title, m.contestant, *_cells(m), "\n".join(map(ratio_text, found)))
            title = ""
        made.add_section()
    return made


def _cells(m: Measurement) -> tuple[str, str]:
    if not m.values:
        return "–", f"missing: {m.missing}" if m.missing else ""
    low, high = min(m.values), max(m.values)
    return figure_text(median(m.values), m.unit), f"{figure_text(low, m.unit)} – {figure_text(high, m.unit)}"


def ratio_text(r: Ratio) -> str:
    if r.ratio is None:
        return f"no figure against {', '.join(r.against)}"
    against = r.against[0] if len(r.against) == 1 else "the best of " + ", ".join(r.against)
    target = "" if r.target is None else f", target {r.target:g} {'met' if r.met else 'MISSED'}"
    return f"{r.ratio:.2f} × ({r.low:.2f} – {r.high:.2f}) {against}{target}"


def plot(report: Report, path: Path) -> None:
    """Bars of medians with their spread, a panel for each unit. Needs matplotlib (the bench extra)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = [m for m in report.measurements if m.values]
    units = list(dict.fromkeys(m.unit for m in shown))
    heights = [sum(m.unit == unit for m in shown) for unit in units]
    figure, axes = plt.subplots(
        len(units),
        1,
        figsize=(10, 0.34 * sum(heights) + 1.1 * len(units)),
        squeeze=False,
        gridspec_kw={"height_ratios": [h + 1.5 for h in heights]},
        layout="constrained",
    )
    for axis, unit in zip(axes[:, 0], units, strict=True):
        rows = [m for m in shown if m.unit == unit][::-1]
        for row, m in enumerate(rows):
            middle = median(m.values)
            spread = [[middle - min(m.values)], [max(m.values) - middle]]
            axis.barh(row, middle, xerr=spread, color="#2a78b5" if m.ours else "#b0b0b0", capsize=2)
        axis.set_yticks(range(len(rows)), [f"{m.test}: {m.contestant}" for m in rows], fontsize=7)
        if max(median(m.values) for m in rows) > 20 * min(median(m.values) for m in rows):
            axis.set_xscale("log")
        less = rows[0].less_is_better
        axis.set_title(f"{unit} ({'less' if less else 'more'} is better)", fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def page(report: Report) -> str:
    """One page that opens without a network."""
    rows = []
    tests = list(dict.fromkeys(m.test for m in report.measurements))
    for test in tests:
        mine = [m for m in report.measurements if m.test == test]
        most = max((max(m.values) for m in mine if m.values), default=1.0)
        for i, m in enumerate(mine):
            share = median(m.values) / most if m.values and most else 0
            found = [r for r in report.ratios if r.test == test and r.ours == m.contestant]
            color = "#2a78b5" if m.ours else "#b0b0b0"
            cells = [html.escape(cell) for cell in (test if i == 0 else "", m.contestant, *_cells(m))]
            bar = f'<i style="width:{share * 160:.0f}px;background:{color}"></i>'
            ratios = "<br>".join(html.escape(ratio_text(r)) for r in found)
            rows.append("<tr>" + "".join(f"<td>{c}</td>" for c in (*cells, bar, ratios)) + "</tr>")
    title = html.escape(f"gristmill bench {report.bench}")
    where = html.escape(f"{machine.sentence(report.machine)}; load {report.load:.1f}; {report.when}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>'
        "body{font:14px/1.5 system-ui,sans-serif;margin:32px}table{border-collapse:collapse}"
        "td,th{padding:3px 14px 3px 0;text-align:left;border-bottom:1px solid #eee;vertical-align:top}"
        "td:nth-child(3),td:nth-child(4){text-align:right;font-variant-numeric:tabular-nums}"
        "i{display:inline-block;height:11px}</style></head><body>"
        f"<h1>{title}</h1><p>{where}</p><table><tr><th>test<th>contestant<th>median<th>least – most<th><th>"
        f"ratios</tr>{''.join(rows)}</table></body></html>\n"
    )


def show(report: Report) -> None:
    """The table and the machine, on stdout."""
    from rich.console import Console

    # Wide enough for the table wherever it goes: a file or a pipe has no width of its own.
    Console(width=max(Console().width, 160)).print(table(report))
    print(f"{machine.sentence(report.machine)}; load before the run {report.load:.1f}")


def finish(
    report: Report, json_file: Path | None, plot_file: Path | None = None, html_file: Path | None = None
) -> None:
    """Writes what was asked for."""
    if json_file is not None:
        report.write(json_file)
    if plot_file is not None:
        plot(report, plot_file)
    if html_file is not None:
        html_file.write_text(page(report), encoding="utf-8")
