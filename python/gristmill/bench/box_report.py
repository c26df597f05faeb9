"""How `gristmill bench box` shows its figures: a table, lines, and a picture."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

TITLES = {
    "gristmill": "gristmill",
    "sharedbox": "sharedbox 0.6.0",
    "multiprocessing": "mp.Value, or\nSharedMemory + Lock",
    "memcpy": "NumPy copy\n(glibc memcpy)",
}
COLORS = {
    "gristmill": "#2a78b5",
    "sharedbox": "#e08a3c",
    "multiprocessing": "#b0b0b0",
    "memcpy": "#606060",
}


def seconds_text(seconds: float) -> str:
    for unit, factor in (("ns", 1e9), ("µs", 1e6), ("ms", 1e3)):
        if seconds * factor < 1000:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def spread(values: list[float]) -> str:
    if not values:
        return "–"
    low, high = seconds_text(min(values)), seconds_text(max(values))
    return f"{seconds_text(median(values))}\n({low} – {high})"


def table(runs: dict[str, list[dict[str, float]]], missing: dict[str, str], repeats: int) -> Table:
    """Median (least – most) of each operation; the last column divides gristmill's by the best other's."""
    from rich.table import Table

    result = Table(title=f"gm.Box in one process: median (least – most) of {repeats}")
    result.add_column("", no_wrap=True)
    for key, title in TITLES.items():
        result.add_column(title + (f"\nmissing: {missing[key]}" if key in missing else ""), justify="right")
    result.add_column("ours ÷\nthe best other", justify="right")
    operations = list(dict.fromkeys(name for key in TITLES for run in runs.get(key, []) for name in run))
    for operation in operations:
        values = {key: [run[operation] for run in runs.get(key, []) if operation in run] for key in TITLES}
        others = [median(v) for key, v in values.items() if key != "gristmill" and v]
        ours = values["gristmill"]
        ratio = f"{median(ours) / min(others):.2f}" if ours and others else "–"
        result.add_row(operation, *(spread(values[key]) for key in TITLES), ratio)
    return result


def gathered(rounds: list[dict[str, Any]], part: str) -> dict[str, dict[str, list[float]]]:
    """{row: {figure: its value in each round}} of a part."""
    rows: dict[str, dict[str, list[float]]] = {}
    for each in rounds:
        for row, figures in each.get(part, {}).items():
            for name, value in figures.items():
                if isinstance(value, dict):
                    for inner, number in value.items():
                        rows.setdefault(f"{row}, {name}", {}).setdefault(inner, []).append(number)
                else:
                    rows.setdefault(row, {}).setdefault(name, []).append(value)
    return rows


def _times(values: list[float]) -> str:
    return spread(values).replace("\n", " ")


def lines(rounds: list[dict[str, Any]], memory: dict[str, float]) -> list[str]:
    """What was measured between processes, for people: median (least – most)."""
    said = ["A write while N processes sleep in a watch:"]
    for row, figures in gathered(rounds, "watchers").items():
        said.append(f"  {row}: " + ", ".join(f"{n} {_times(v)}" for n, v in figures.items()))
    said.append("A reader while a writer publishes 10 MiB without pause:")
    for row, f in gathered(rounds, "reader").items():
        ratio = median(p / m for p, m in zip(f["p99"], f["memcpy"], strict=True))
        said.append(
            f"  {row}: {sum(f['reads']):.0f} reads in {sum(f['seconds']):.0f} s, "
            f"{sum(f['time-outs']):.0f} time-outs, {sum(f['torn']):.0f} torn; p50 {_times(f['p50'])}, "
            f"p99 {_times(f['p99'])}: {ratio:.1f} memcpys"
        )
    said.append("A writer killed (-9) amid 10 MiB:")
    for row, f in gathered(rounds, "writer killed").items():
        said.append(
            f"  {row}: others blocked in {sum(f['blocked']):.0f} of {sum(f['kills']):.0f}, "
            f"torn in {sum(f['torn']):.0f}; longest stall {seconds_text(max(f['longest stall']))}"
        )
    said.append("Contention, writers × readers, calls a second of all processes together:")
    for row, f in gathered(rounds, "contention").items():
        figures = ", ".join(
            f"{name.removesuffix('/s')} {median(v) / 1e6:.2f} M ({min(v) / 1e6:.2f} – {max(v) / 1e6:.2f})"
            for name, v in f.items()
            if any(v)
        )
        said.append(f"  {row}: {figures}")
    said.append("Round trip between two processes:")
    for part in ("round_trips", "round trip"):
        for row, f in gathered(rounds, part).items():
            if row.startswith("gristmill, watch"):
                continue  # the same as "gristmill, asleep"
            said.append(f"  {row}: p50 {_times(f['p50'])}, p99 {_times(f['p99'])}")
    said.append("Published to usable in a worker:")
    for row, f in gathered(rounds, "published_to_usable").items():
        said.append(f"  {row}: " + ", ".join(f"{name} {_times(v)}" for name, v in f.items()))
    said.append(
        "Memory for 25 million float32 parameters and 4 workers: "
        f"box {memory['box'] / 2**20:.0f} MiB; the workers' own, pinned "
        f"{memory['workers pinned'] / 2**20:.0f} MiB, "
        f"copied {memory['workers copied'] / 2**20:.0f} MiB"
    )
    return said


def plot(runs: dict[str, list[dict[str, float]]], rounds: list[dict[str, Any]], path: Path) -> None:
    """Each operation's median, and a write's time by the number of watchers; both logarithmic. Needs
    matplotlib (the bench extra)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    operations = list(dict.fromkeys(n for run in runs.get("gristmill", []) for n in run))[::-1]
    watchers = gathered(rounds, "watchers")
    figure, (axis, crowd) = plt.subplots(
        1,
        2,
        figsize=(12, 0.5 * len(operations) + 1.5),
        layout="constrained",
        gridspec_kw={"width_ratios": [3, 2]},
    )
    for place, (key, color) in enumerate(COLORS.items()):
        rows, values = [], []
        for row, operation in enumerate(operations):
            found = [run[operation] for run in runs.get(key, []) if operation in run]
            if found:
                rows.append(row + 0.3 - 0.2 * place)
                values.append(median(found) * 1e9)
        if rows:
            axis.barh(rows, values, height=0.19, color=color, label=TITLES[key].replace("\n", " "))
    axis.set_xscale("log")
    axis.set_xlabel("nanoseconds (logarithmic; less is better)")
    axis.set_yticks(range(len(operations)), operations)
    axis.set_title("A call in one process", fontsize=10)
    for key, figures in watchers.items():
        counts = [int(n) for n in figures]
        medians = [median(values) * 1e6 for values in figures.values()]
        crowd.plot(counts, medians, "o-", color=COLORS.get(key), label=TITLES.get(key, key))
    crowd.set_xscale("symlog", base=2, linthresh=4)
    crowd.set_yscale("log")
    crowd.set_xticks([0, 8, 64, 256], ["0", "8", "64", "256"])
    crowd.set_xlabel("processes asleep in a watch")
    crowd.set_ylabel("microseconds for one write (logarithmic)")
    crowd.set_title("What watchers cost the writer", fontsize=10)
    for each in (axis, crowd):
        each.spines[["top", "right"]].set_visible(False)
        each.legend(fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)
