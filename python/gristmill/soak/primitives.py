"""The part over core's shared-memory primitives: runs gristmill-soak and reads what it tells."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gristmill.soak.findings import PartResult

PARTS = ("queue", "trajectories", "box", "segments")


class SoakError(RuntimeError):
    """The campaign could not be run."""


def executable() -> Path:
    """gristmill-soak of this installation, or GRISTMILL_SOAK's."""
    path = Path(os.environ.get("GRISTMILL_SOAK") or Path(__file__).resolve().parents[1] / "gristmill-soak")
    if not path.exists():
        raise SoakError(
            f"{path} is not there: expected it beside the package's extension modules; run `make setup`"
        )
    return path


def fault_points() -> dict[str, str]:
    """Every fault point that there is, and the part it belongs to."""
    done = subprocess.run([executable(), "--list-points"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["points"]


def run(
    arguments: list[str], tell: Callable[[dict[str, Any]], None]
) -> tuple[dict[str, PartResult], dict[str, Any]]:
    """Plays rounds until it is over; `tell` gets each round's figures as it ends.

    Returns the parts and gristmill-soak's own summary. Raises SoakError when it ends without one.
    """
    command = [str(executable()), "--die-with-parent", *arguments]
    parts: dict[str, PartResult] = {}
    summary: dict[str, Any] = {}
    texts: dict[str, list[str]] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                event = json.loads(line)
                if event["event"] == "round":
                    texts.setdefault(event["part"], []).extend(
                        f"{text} (again: gristmill soak {event['again']})" for text in event["texts"]
                    )
                    tell(event)
                else:
                    summary = event
        except BaseException:
            process.terminate()
            raise
    if not summary:
        raise SoakError(f"gristmill-soak ended with {process.returncode} and without a result")
    for name, part in summary["parts"].items():
        parts[name] = PartResult(
            name,
            faults=part["roles"],
            measures=part["measures"],
            findings=part["findings"],
            stalls_ms=part["stalls_ms"],
            net_stalls_ms=part["net_stalls_ms"],
            late_ms=part["late_ms"],
            noise_ms=part["noise_ms"],
            points=part["points"],
            texts=texts.get(name, []),
        )
    return parts, summary
