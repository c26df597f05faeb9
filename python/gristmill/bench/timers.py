"""`gristmill bench timers`: gm.TimerQueue beside heapq, heapq that is cleaned, and sortedcontainers."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gristmill.bench import machine, result
from gristmill.bench.peers import PEERS, PeerMissingError, default_folder
from gristmill.bench.train import RunFailedError, last_json, run_limited

if TYPE_CHECKING:
    from rich.table import Table

_DRIVER = Path(__file__).resolve().parent / "drivers" / "run_timers.py"
_LIMIT_S = 600
# connections, restarts a second of simulated time
CASES = ((1_000, 100), (10_000, 1_000))
SIZES = (1_000, 10_000, 100_000, 1_000_000)
# The C++ loop's CPU time against heapq's, and the cost of one restart in turn: at most.
CPU_TARGET = 1 / 100
RESTART_TARGET_NS = 50
TITLES = {
    "gristmill": "TimerQueue (C++ loop)",
    "gristmill-python": "gm.TimerQueue (Python loop)",
    "heapq": "heapq, lazy deletion",
    "heapq-eager": "heapq, cancelled dropped once first",
    "heapq-reheapify": "heapq, re-heapified at 80 % cancelled",
    "sortedcontainers": "sortedcontainers 2.4.0",
}


@dataclass
class Case:
    """One simulated hour (or less) of each contestant, over and over."""

    connections: int
    hertz: int
    seconds: int
    runs: dict[str, list[dict[str, float]]] = field(default_factory=lambda: {key: [] for key in TITLES})

    @property
    def title(self) -> str:
        return f"{self.connections:,} timers, {self.hertz:,} restarts/s"

    def figure(self, contestant: str, name: str) -> float | None:
        runs = self.runs[contestant]
        return median(run[name] for run in runs) if runs else None

    def outcome(self) -> dict[str, Any]:
        """The targets: CPU of the C++ loop against heapq's, and the longest queue."""
        ours, theirs = self.figure("gristmill", "cpu_s"), self.figure("heapq", "cpu_s")
        ratio = ours / theirs if ours is not None and theirs else None
        longest = self.figure("gristmill", "longest")
        return {
            "cpu_ratio": ratio,
            "cpu_met": None if ratio is None else ratio <= CPU_TARGET,
            "longest_met": None if longest is None else longest == self.connections,
        }


def restart_outcome(costs: dict[int, list[dict[str, float]]]) -> dict[str, Any]:
    """Whether a restart in turn stays within its nanoseconds at every size."""
    medians = {size: median(run["in_turn_ns"] for run in runs) for size, runs in costs.items() if runs}
    worst = max(medians.values(), default=None)
    return {"worst_ns": worst, "met": None if worst is None else worst <= RESTART_TARGET_NS}


def _spread(values: list[float], form: str) -> str:
    if not values:
        return "–"
    middle, low, high = (form.format(value) for value in (median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low} – {high})"


def table(cases: list[Case], missing: dict[str, str], repeats: int) -> Table:
    """Median (least – most) of each figure; the last column divides heapq's CPU time by the row's."""
    from rich.table import Table

    drawn = Table(title=f"Timers of 10 minutes, restarted in turn: median (least – most) of {repeats}")
    for column in ("", "longest queue", "memory, MiB", "CPU, s", "less CPU\nthan heapq"):
        drawn.add_column(column, justify="left" if not column else "right", no_wrap=not column)
    for case in cases:
        drawn.add_section()
        drawn.add_row(f"[bold]{case.title}, {case.seconds:,} s[/bold]")
        reference = case.figure("heapq", "cpu_s")
        for key, title in TITLES.items():
            if key in missing:
                drawn.add_row(title, f"missing: {missing[key]}")
                continue
            runs = case.runs[key]
            cpu = case.figure(key, "cpu_s")
            drawn.add_row(
                title,
                _spread([run["longest"] for run in runs], "{:,.0f}"),
                _spread([run["resident_bytes"] / 2**20 for run in runs], "{:.1f}"),
                _spread([run["cpu_s"] for run in runs], "{:.4f}"),
                f"{reference / cpu:,.1f}×" if reference and cpu else "–",
            )
    return drawn


def restart_table(costs: dict[int, list[dict[str, float]]], repeats: int) -> Table:
    from rich.table import Table

    drawn = Table(title=f"One restart to a later time, C++ loop, ns: median (least – most) of {repeats}")
    for column in ("timers", "in turn", "at random"):
        drawn.add_column(column, justify="right")
    for size, runs in costs.items():
        values = [_spread([run[name] for run in runs], "{:.1f}") for name in ("in_turn_ns", "random_ns")]
        drawn.add_row(f"{size:,}", *values)
    return drawn


def plot(cases: list[Case], costs: dict[int, list[dict[str, float]]], path: Path) -> None:
    """CPU time of each contestant, and the restart's cost by size. Needs matplotlib (the bench extra)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
    keys = list(TITLES)[::-1]
    for place, case in enumerate(cases):
        values = [case.figure(key, "cpu_s") or 0 for key in keys]
        rows = [row + 0.2 - 0.4 * place for row in range(len(keys))]
        axes[0].barh(rows, values, height=0.38, label=case.title, color=("#2a78b5", "#9cc3e0")[place % 2])
    axes[0].set_yticks(range(len(keys)), [TITLES[key] for key in keys])
    axes[0].set_xscale("log")
    axes[0].set_title("CPU seconds (logarithmic; less is better)", fontsize=11)
    axes[0].legend(fontsize=8)
    for name, label in (("in_turn_ns", "in turn"), ("random_ns", "at random")):
        points = [(size, median(run[name] for run in runs)) for size, runs in costs.items() if runs]
        axes[1].plot(*zip(*points, strict=True), marker="o", label=label) if points else None
    axes[1].axhline(RESTART_TARGET_NS, color="#c05020", linestyle=":", label=f"{RESTART_TARGET_NS} ns")
    axes[1].set_xscale("log")
    axes[1].set_ylim(bottom=0)
    axes[1].set_xlabel("live timers")
    axes[1].set_title("nanoseconds a restart", fontsize=11)
    axes[1].legend(fontsize=8)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _verdict(met: bool | None) -> str:
    return {True: "met", False: "missed", None: "no figure"}[met]


def lines(cases: list[Case], costs: dict[int, list[dict[str, float]]]) -> list[str]:
    """The targets, for people."""
    said = []
    for case in cases:
        outcome = case.outcome()
        ratio = outcome["cpu_ratio"]
        times = f"1/{1 / ratio:,.0f} of heapq's" if ratio else "–"
        said.append(
            f"{case.title}: CPU of the C++ loop {times} (target: at most 1/{1 / CPU_TARGET:.0f}): "
            f"{_verdict(outcome['cpu_met'])}; longest queue as long as there are timers: "
            f"{_verdict(outcome['longest_met'])}"
        )
    outcome = restart_outcome(costs)
    worst = "–" if outcome["worst_ns"] is None else f"{outcome['worst_ns']:.1f} ns"
    said.append(
        f"a restart in turn costs at most {worst} from {min(SIZES):,} to {max(SIZES):,} timers "
        f"(target: {RESTART_TARGET_NS} ns): {_verdict(outcome['met'])}"
    )
    said.append(
        "The C++ loop is what the targets are of; the Python loop pays Python's calls like the peers."
    )
    return said


def _run(python: str, *arguments: object) -> dict[str, float]:
    command = [python, str(_DRIVER), *(str(argument) for argument in arguments)]
    return last_json(run_limited(command, _LIMIT_S, dict(os.environ)), "RESULT ")


def as_report(
    cases: list[Case],
    costs: dict[int, list[dict[str, float]]],
    missing: dict[str, str],
    details: dict[str, Any],
) -> result.Report:
    """In the form of every benchmark: CPU seconds and longest queue of each case; details: all."""
    outcomes = {"cases": [asdict(case) | {"outcome": case.outcome()} for case in cases]}
    outcomes |= {"restart": costs, "restart_outcome": restart_outcome(costs)}
    made = result.Report("timers", [], details=details | outcomes)
    for case in cases:
        for name, unit, title in (("cpu_s", "s", "CPU"), ("longest", "timers", "longest queue")):
            test = f"{case.title}: {title}"
            for key, runs in case.runs.items():
                values = [run[name] for run in runs]
                ours = key.startswith("gristmill")
                made.measurements.append(
                    result.Measurement(test, TITLES[key], ours, unit, True, values, missing.get(key, ""))
                )
            target = 1 / CPU_TARGET if name == "cpu_s" else None
            made.compare(test, TITLES["gristmill"], [TITLES["heapq"]], target)
    return made


def bench_timers(
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each contestant, alternated.")] = 3,
    seconds: Annotated[
        int, typer.Option(min=1, help="Simulated seconds; the targets are of an hour.")
    ] = 3600,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures there.")] = None,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Draw the figures there (PNG).")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page that opens without a network.")] = None,
) -> None:
    """gm.TimerQueue beside heapq, heapq that is re-heapified, and sortedcontainers, in the same run.

    N connections, each with a timer of ten minutes that is restarted in turn. A peer that cannot be
    installed is reported as missing.
    """
    from rich.console import Console

    console = Console(stderr=True)
    missing: dict[str, str] = {}
    pythons = dict.fromkeys(TITLES, sys.executable)
    peer = PEERS["timers"]
    try:
        peer.install(default_folder())
        pythons["sortedcontainers"] = str(peer.python(default_folder()))
    except PeerMissingError as error:
        missing["sortedcontainers"] = str(error)
    load = os.getloadavg()[0]
    cases = [Case(connections, hertz, seconds) for connections, hertz in CASES]
    costs: dict[int, list[dict[str, float]]] = {size: [] for size in SIZES}
    for repeat in range(repeats):
        for case in cases:
            for key in TITLES:
                if key in missing:
                    continue
                console.print(f"repeat {repeat + 1} of {repeats}: {case.title}: {key} …", highlight=False)
                try:
                    case.runs[key].append(_run(pythons[key], key, case.connections, case.hertz, case.seconds))
                except RunFailedError as error:
                    missing[key] = str(error)
        try:
            for size, runs in costs.items():
                runs.append(_run(sys.executable, "restart-cost", size, 0, 0))
        except RunFailedError as error:
            missing["gristmill"] = str(error)
    out = Console(width=max(Console().width, 120))
    out.print(table(cases, missing, repeats))
    out.print(restart_table(costs, repeats))
    for line in lines(cases, costs):
        print(line)
    print(f"{machine.sentence()}; load before the run {load:.1f}")
    made = as_report(cases, costs, missing, {"repeats": repeats})
    made.load = load
    result.finish(made, json_file, html_file=html)
    if plot_file:
        plot(cases, costs, plot_file)
    if any(key != "sortedcontainers" for key in missing):
        raise typer.Exit(1)
