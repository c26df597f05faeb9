"""`gristmill bench box`: the box beside sharedbox, multiprocessing's Value, SharedMemory and Namespace."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Annotated, Any

import typer

from gristmill.bench import box_processes, box_report, machine, result
from gristmill.bench.box_report import TITLES, table
from gristmill.bench.peers import default_folder
from gristmill.bench.train import RunFailedError, last_json, run_limited

_HERE = Path(__file__).resolve().parent
_DRIVER = _HERE / "drivers" / "run_box.py"
_SHARED_DRIVER = _HERE / "drivers" / "run_box_shared.py"
_REQUIREMENTS = _HERE / "requirements" / "box.txt"


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


def _between_processes(console: Any, pythons: dict[str, str], missing: dict[str, str]) -> dict[str, Any]:
    """One round of what takes several processes: {part: {row: {figure: value}}}."""
    results: dict[str, Any] = {}
    for key in ("gristmill", "sharedbox"):
        if key in missing:
            continue
        console.print(f"  between processes: {key} …", highlight=False)
        try:
            output = run_limited([pythons[key], str(_SHARED_DRIVER), key], 600, dict(os.environ))
            for part, figures in last_json(output, "RESULT ").items():
                results.setdefault(part, {})[key] = figures
        except RunFailedError as error:
            missing[f"{key} between processes"] = str(error)
    for name in ("contention", "round_trips", "published_to_usable"):
        console.print(f"  {name.replace('_', ' ')} …")
        results[name] = getattr(box_processes, name)()
    return results


def as_report(
    runs: dict[str, list[dict[str, float]]], missing: dict[str, str], details: dict[str, Any]
) -> result.Report:
    """In the form of every benchmark: a test for each operation in one process, in seconds."""
    made = result.Report("box", [], details=details)
    titles = {key: title.replace("\n", " ") for key, title in TITLES.items()}
    operations = list(dict.fromkeys(name for key in TITLES for run in runs.get(key, []) for name in run))
    for operation in operations:
        for key, title in titles.items():
            values = [run[operation] for run in runs.get(key, []) if operation in run]
            if values or key in missing:
                ours, why = key == "gristmill", missing.get(key, "")
                made.measurements.append(result.Measurement(operation, title, ours, "s", True, values, why))
        made.compare(operation, titles["gristmill"], [t for key, t in titles.items() if key != "gristmill"])
    return made


def bench_box(
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each contestant, alternated.")] = 3,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures there.")] = None,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Draw the table there (PNG).")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page that opens without a network.")] = None,
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
    rounds: list[dict[str, Any]] = []
    for repeat in range(repeats):
        console.print(f"repeat {repeat + 1} of {repeats}", highlight=False)
        for key in TITLES:
            if key in missing:
                continue
            console.print(f"  in one process: {key} …", highlight=False)
            try:
                output = run_limited([pythons[key], str(_DRIVER), key], 300, dict(os.environ))
                runs[key].append(last_json(output, "RESULT "))
            except RunFailedError as error:
                missing[key] = str(error)
        rounds.append(_between_processes(console, pythons, missing))
    console.print("resident memory …")
    memory = box_processes.resident_memory()
    Console(width=max(Console().width, 140)).print(table(runs, missing, repeats))
    for line in box_report.lines(rounds, memory):
        print(line)
    for key, why in missing.items():
        print(f"missing: {key}: {why}")
    print(f"{machine.sentence()}; load before the run {load:.1f}")
    details = {"repeats": repeats, "between_processes": rounds, "resident_memory": memory}
    made = as_report(runs, missing, details)
    made.load = load
    result.finish(made, json_file, html_file=html)
    if plot_file:
        box_report.plot(runs, rounds, plot_file)
    if any(not key.startswith("sharedbox") for key in missing):
        raise typer.Exit(1)
