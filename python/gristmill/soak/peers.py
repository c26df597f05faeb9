"""Trials with kill -9 of our queue and box and of their closest peers: how often each hangs or loses."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gristmill.bench.box import install_sharedbox
from gristmill.bench.peers import PEERS, PeerMissingError, default_folder
from gristmill.bench.train import RunFailedError, last_json, run_limited

if TYPE_CHECKING:
    from rich.table import Table

_DRIVER = Path(__file__).resolve().parents[1] / "bench" / "drivers" / "run_faults.py"
SIZES = {"1 KiB": 1 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20}
VICTIMS = ("producer", "consumer")
QUEUES = {
    "gristmill": "gm.Queue",
    "faster-fifo": "faster-fifo 1.5.2",
    "multiprocessing": "multiprocessing.Queue",
}
BOXES = {"gristmill": "gm.Box", "sharedbox": "sharedbox 0.6.0"}


@dataclass
class Trials:
    """One contestant in one kind of trial."""

    what: str  # queue or box
    contestant: str
    case: str
    result: dict[str, int] = field(default_factory=dict)
    missing: str = ""

    @property
    def ours(self) -> bool:
        return self.contestant == "gristmill"

    @property
    def violations(self) -> int:
        return sum(n for key, n in self.result.items() if key != "trials")

    def text(self) -> str:
        if self.missing:
            return f"missing: {self.missing}"
        r = self.result
        if self.what == "box":
            return f"{r['blocked']} blocked, {r['torn']} torn, of {r['trials']}"
        found = f"{r['hung']} hung, {r['lost_in']} lost something"
        found += f" ({r['lost']:,})" if r["lost"] else ""
        for key in ("doubled", "damaged"):
            found += f", {r[key]} {key}" if r[key] else ""
        return found + f", of {r['trials']}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _pythons() -> dict[str, str]:
    """Of each contestant, its Python; or "missing: …"."""
    pythons = {"gristmill": sys.executable, "multiprocessing": sys.executable}
    try:
        PEERS["queue"].install(default_folder())
        pythons["faster-fifo"] = str(PEERS["queue"].python(default_folder()))
    except PeerMissingError as error:
        pythons["faster-fifo"] = f"missing: {error}"
    try:
        pythons["sharedbox"] = str(install_sharedbox(default_folder()))
    except RunFailedError as error:
        pythons["sharedbox"] = f"missing: {error}"
    return pythons


def run(trials: int, seed: int, say: Callable[[str], None]) -> list[Trials]:
    pythons = _pythons()
    all_trials = []
    cases = [
        (Trials("queue", contestant, f"{victim} killed, {label}"), [victim, str(size)])
        for label, size in SIZES.items()
        for victim in VICTIMS
        for contestant in QUEUES
    ]
    cases += [(Trials("box", contestant, "writer killed, 2 × 1 MiB"), [str(1 << 20)]) for contestant in BOXES]
    for one, words in cases:
        all_trials.append(one)
        python = pythons[one.contestant]
        if python.startswith("missing: "):
            one.missing = python.removeprefix("missing: ")
        else:
            command = [python, str(_DRIVER), one.what, one.contestant, *words, str(trials), str(seed)]
            try:
                output = run_limited(command, 60 + 12.0 * trials, dict(os.environ))
                one.result = last_json(output, "RESULT ")
            except RunFailedError as error:
                one.missing = str(error)
        say(f"{one.contestant}, {one.case}: {one.text()}")
    return all_trials


def grid(all_trials: list[Trials]) -> list[list[str]]:
    """Case, then a cell for each contestant; queues first. The first row of each holds the names."""
    lines = []
    for what, titles in (("queue", QUEUES), ("box", BOXES)):
        lines.append([what, *titles.values()])
        for case in dict.fromkeys(t.case for t in all_trials if t.what == what):
            cells = {t.contestant: t.text() for t in all_trials if t.what == what and t.case == case}
            lines.append([case, *(cells.get(contestant, "") for contestant in titles)])
    return lines


def tables(all_trials: list[Trials]) -> list[Table]:
    from rich.table import Table

    result: list[Table] = []
    for label, *cells in grid(all_trials):
        if label in ("queue", "box"):
            result.append(Table(title=f"One process killed -9, a fresh one given 3 s: {label}"))
            result[-1].add_column("", no_wrap=True)
            for cell in cells:
                result[-1].add_column(cell)
        else:
            result[-1].add_row(label, *cells)
    return result


def markdown(all_trials: list[Trials]) -> str:
    lines = []
    for label, *cells in grid(all_trials):
        if label in ("queue", "box"):
            lines += ["", "| | " + " | ".join(cells) + " |", "| --- |" + " --- |" * len(cells)]
        else:
            lines.append("| " + " | ".join([label, *cells]) + " |")
    return "\n".join(lines[1:]) + "\n"
