"""`gristmill bench compare A.json B.json`: what changed beyond noise."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from gristmill.bench import machine, result

# Less than this is no change, however close the repeats are to each other.
_LEAST = 0.03


@dataclass
class Change:
    test: str
    contestant: str
    ours: bool
    unit: str
    before: float
    after: float
    times: float  # as good as before: above 1 is better
    noise: float  # how far the repeats of either side spread, as a share
    verdict: str  # better, worse, same, or unsure: too few repeats to tell


def changes(a: result.Report, b: result.Report) -> list[Change]:
    """Of every measurement that both have."""
    found = []
    for before in a.measurements:
        after = b.find(before.test, before.contestant)
        if after is None or not before.values or not after.values or after.unit != before.unit:
            continue
        old, new = median(before.values), median(after.values)
        if not old or not new:
            continue
        times = old / new if before.less_is_better else new / old
        noise = max((max(m.values) - min(m.values)) / median(m.values) for m in (before, after))
        found.append(
            Change(
                before.test,
                before.contestant,
                before.ours,
                before.unit,
                old,
                new,
                times,
                noise,
                _verdict(before.values, after.values, times),
            )
        )
    return found


def _verdict(old: list[float], new: list[float], times: float) -> str:
    """Beyond noise is what every repeat of the one side says about every repeat of the other."""
    if abs(times - 1) < _LEAST:
        return "same"
    if min(len(old), len(new)) < 3:
        return "unsure"
    if max(min(old), min(new)) <= min(max(old), max(new)):
        return "same"
    return "better" if times > 1 else "worse"


def sentence(found: list[Change]) -> str:
    """What it comes to, of ours; the peers tell whether the machine was another."""
    ours = [c for c in found if c.ours]
    peers = [c for c in found if not c.ours]
    count = {v: sum(c.verdict == v for c in ours) for v in ("better", "worse", "same", "unsure")}
    text = (
        f"Of {len(ours)} figures of ours, {count['better']} are better and {count['worse']} worse beyond "
        f"noise, {count['same']} the same"
    )
    text += f", {count['unsure']} measured too seldom to tell" if count["unsure"] else ""
    moved = [c for c in peers if c.verdict in ("better", "worse")]
    if peers and len(moved) * 2 > len(peers):
        middle = median(c.times for c in peers)
        text += f". But {len(moved)} of {len(peers)} peers changed as well, {middle:.2f} × in the middle: "
        text += "the machine was not the same"
    return text + "."


def bench_compare(
    before: Annotated[
        Path, typer.Argument(metavar="A.json", help="A report: gristmill bench … --json A.json")
    ],
    after: Annotated[Path, typer.Argument(metavar="B.json", help="A later one.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the changes as JSON.")] = False,
    fail: Annotated[bool, typer.Option("--fail", help="Exit with 1 when a figure of ours is worse.")] = False,
) -> None:
    """Say what changed between two reports beyond noise.

    A change counts when it is at least 3 % and every repeat before lies on one side of every repeat after.
    """
    from gristmill._core import ConfigError

    try:
        a, b = result.read(before), result.read(after)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: {error.strerror}; expected a report that gristmill bench … --json FILE wrote"
        ) from None
    if a.bench != b.bench:
        raise ConfigError(
            f"{before} is of bench {a.bench}, {after} of bench {b.bench}: expected two of one kind"
        )
    found = changes(a, b)
    if as_json:
        print(json.dumps([asdict(c) for c in found]))
    else:
        _show(found, a, b)
    if fail and any(c.ours and c.verdict == "worse" for c in found):
        raise typer.Exit(1)


def _show(found: list[Change], a: result.Report, b: result.Report) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"gristmill bench {a.bench}: {a.when} → {b.when}")
    for name in ("test", "contestant"):
        table.add_column(name)
    for name in ("before", "after", "times as good", "noise"):
        table.add_column(name, justify="right")
    table.add_column("")
    styles: dict[str, Any] = {"better": "green", "worse": "red", "unsure": "dim"}
    for c in found:
        old, new = (result.figure_text(value, c.unit) for value in (c.before, c.after))
        style = styles.get(c.verdict)
        table.add_row(
            c.test, c.contestant, old, new, f"{c.times:.2f}", f"± {c.noise / 2:.0%}", c.verdict, style=style
        )
    Console(width=max(Console().width, 140)).print(table)
    print(sentence(found))
    if a.machine != b.machine:
        print(f"before: {machine.sentence(a.machine)}\nafter:  {machine.sentence(b.machine)}")
