"""`gristmill bench box`: the box beside sharedbox, multiprocessing's Value, SharedMemory and Namespace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gristmill.bench import machine
from gristmill.bench.peers import default_folder
from gristmill.bench.train import RunFailedError, last_json, run_limited

if TYPE_CHECKING:
    from rich.table import Table

_HERE = Path(__file__).resolve().parent
_DRIVER = _HERE / "drivers" / "run_box.py"
_REQUIREMENTS = _HERE / "requirements" / "box.txt"
TITLES = {
    "gristmill": "gristmill",
    "sharedbox": "sharedbox 0.6.0",
    "multiprocessing": "mp.Value, or\nSharedMemory + Lock",
    "memcpy": "NumPy copy\n(glibc memcpy)",
}


def install_sharedbox(folder: Path) -> Path:
    """Its Python, with sharedbox in a virtual environment of its own. Raises RunFailedError."""
    python = folder / "box" / "bin" / "python"
    stamp = folder / "box" / ".stamp"
    wanted = _REQUIREMENTS.read_text()
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    try:
        if not python.exists():
            venv.create(folder / "box", with_pip=True)
        command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        done = subprocess.run(
            [*command, "-r", str(_REQUIREMENTS)], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise RunFailedError(str(error)) from error
    if done.returncode:
        raise RunFailedError((done.stderr.strip().splitlines() or ["pip failed"])[-1])
    stamp.write_text(wanted)
    return python


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


def plot(runs: dict[str, list[dict[str, float]]], path: Path) -> None:
    """Bars of each operation's median, logarithmic. Needs matplotlib (the bench extra)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    operations = list(dict.fromkeys(n for run in runs.get("gristmill", []) for n in run))[::-1]
    figure, axis = plt.subplots(figsize=(9, 0.55 * len(operations) + 1.5), layout="constrained")
    colors = {
        "gristmill": "#2a78b5",
        "sharedbox": "#e08a3c",
        "multiprocessing": "#b0b0b0",
        "memcpy": "#606060",
    }
    for place, (key, color) in enumerate(colors.items()):
        rows, values = [], []
        for row, operation in enumerate(operations):
            found = [run[operation] for run in runs.get(key, []) if operation in run]
            if found:
                rows.append(row + 0.3 - 0.2 * place)
                values.append(median(found) * 1e9)
        axis.barh(rows, values, height=0.19, color=color, label=TITLES[key].replace("\n", " "))
    axis.set_xscale("log")
    axis.set_xlabel("nanoseconds (logarithmic; less is better)")
    axis.set_yticks(range(len(operations)), operations)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _between_processes(console: Any) -> dict[str, Any]:
    from gristmill.bench import box_processes

    parts = {
        "contention": box_processes.contention,
        "round_trips": box_processes.round_trips,
        "published_to_usable": box_processes.published_to_usable,
        "resident_memory": box_processes.resident_memory,
    }
    results = {}
    for name, part in parts.items():
        console.print(f"{name.replace('_', ' ')} …")
        results[name] = part()
    return results


def lines(results: dict[str, Any]) -> list[str]:
    """What the processes' measurements say, for people."""
    said = ["Contention, writers × readers (all processes together):"]
    for label, row in results["contention"].items():
        said.append(
            f"  {label}: "
            + ", ".join(
                f"{name} {value / 1e6:.2f} M" for name, value in row.items() if value or "writes" in name
            )
        )
    said.append("Round trip between two processes:")
    for label, row in results["round_trips"].items():
        said.append(f"  {label}: p50 {seconds_text(row['p50'])}, p99 {seconds_text(row['p99'])}")
    said.append("Published to usable in a worker:")
    for label, row in results["published_to_usable"].items():
        said.append(f"  {label}: pinned {seconds_text(row['pinned'])}, copied {seconds_text(row['copied'])}")
    memory = results["resident_memory"]
    said.append(
        "Memory for 25 million float32 parameters and 4 workers: "
        f"box {memory['box'] / 2**20:.0f} MiB; the workers' own, pinned "
        f"{memory['workers pinned'] / 2**20:.0f} MiB, "
        f"copied {memory['workers copied'] / 2**20:.0f} MiB"
    )
    return said


def bench_box(
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each contestant, alternated.")] = 3,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures there.")] = None,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Draw the table there (PNG).")] = None,
) -> None:
    """gm.Box beside sharedbox, mp.Value, SharedMemory + Lock and Manager().Namespace(), in the same run.

    A peer that cannot be installed is reported as missing.
    """
    from rich.console import Console

    console = Console(stderr=True)
    missing: dict[str, str] = {}
    pythons = dict.fromkeys(TITLES, sys.executable)
    try:
        pythons["sharedbox"] = str(install_sharedbox(default_folder()))
    except RunFailedError as error:
        missing["sharedbox"] = str(error)
    load = os.getloadavg()[0]
    runs: dict[str, list[dict[str, float]]] = {key: [] for key in TITLES}
    for repeat in range(repeats):
        for key in TITLES:
            if key in missing:
                continue
            console.print(f"repeat {repeat + 1} of {repeats}: {key} …", highlight=False)
            try:
                output = run_limited([pythons[key], str(_DRIVER), key], 300, dict(os.environ))
                runs[key].append(last_json(output, "RESULT "))
            except RunFailedError as error:
                missing[key] = str(error)
    results = _between_processes(console)
    Console(width=max(Console().width, 140)).print(table(runs, missing, repeats))
    for line in lines(results):
        print(line)
    print(f"{machine.sentence()}; load before the run {load:.1f}")
    if json_file:
        document = {
            "machine": machine.describe() | {"load": load},
            "repeats": repeats,
            "runs": runs,
            "missing": missing,
            **results,
        }
        json_file.write_text(json.dumps(document, indent=2) + "\n")
    if plot_file:
        plot(runs, plot_file)
    if any(key != "sharedbox" for key in missing):
        raise typer.Exit(1)
