"""`gristmill bench all`: every benchmark in turn, into one folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

BENCHES = ("queue", "box", "timers", "train", "pipeline")


def bench_all(
    folder: Annotated[Path, typer.Option(help="Where the reports go: NAME.json of each.")] = Path("bench"),
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each; 3 at least for figures to rely on.")] = 3,
    only: Annotated[str, typer.Option(help=f"Of: {', '.join(BENCHES)}.")] = ",".join(BENCHES),
) -> None:
    """Run every benchmark, one after the other, and keep the reports. Takes the better part of an hour."""
    chosen = [name.strip() for name in only.split(",") if name.strip()]
    for name in chosen:
        if name not in BENCHES:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(BENCHES)}", param_hint="--only")
    folder.mkdir(parents=True, exist_ok=True)
    failures = []
    for name in chosen:
        print(f"── bench {name}", flush=True)
        # A process each: none leaves threads, memory or a warm cache to the next.
        words = ["bench", name, "--repeats", str(repeats), "--json", str(folder / f"{name}.json")]
        command = [sys.executable, "-c", "from gristmill.cli import main; main()", *words]
        if subprocess.run(command, check=False).returncode:
            failures.append(name)
    if failures:
        print(f"failed: {', '.join(failures)}", file=sys.stderr)
        raise typer.Exit(1)
