"""The campaign's tables: faults × count, and what came of them; for the terminal and for a README."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gristmill.soak.findings import PartResult

if TYPE_CHECKING:
    from rich.table import Table

KILLS = (
    "killed at random",
    "killed asleep",
    "killed while stopped",
    "killed at a fault point",
    "killed amid a repair",
    "killed, several at once",
    "killed, everybody",
)
STOPS = ("stopped at random", "stopped at a fault point")
TITLES = {
    "queue": "MessageQueue",
    "trajectories": "TrajectoryQueue",
    "box": "Box",
    "segments": "segments",
    "training": "training runs",
}
# What must be zero, and how it is called.
OUTCOMES = {
    "lost": "acknowledged, and lost",
    "doubled": "delivered twice",
    "damaged": "damaged",
    "torn": "torn reads",
    "disordered": "out of order",
    "shrunk": "capacity lost for good",
    "stalled": "stalls over the limit",
    "hung": "hung",
    "left": "shared memory or processes left",
    "broken": "anything else",
}


def _count(part: PartResult, how: str) -> int:
    return sum(hows.get(how, 0) for hows in part.faults.values())


def _number(value: int) -> str:
    return f"{value:,}" if value else "0"


def rows(parts: list[PartResult]) -> list[list[str]]:
    """Label, a cell for each part, and one for all of them. A label in capitals begins a section."""
    table = []

    def add(label: str, values: list[int | None]) -> None:
        cells = ["" if value is None else _number(value) for value in values]
        table.append([label, *cells, _number(sum(value or 0 for value in values))])

    for how in KILLS:
        add(how.replace("killed", "kill -9"), [_count(part, how) for part in parts])
    add("KILLS", [part.kills for part in parts])
    for how in STOPS:
        add(how.replace("stopped", "SIGSTOP"), [_count(part, how) for part in parts])
    add("STOPS", [part.stops for part in parts])
    add("calls acknowledged", [part.measures.get("acknowledged") for part in parts])
    add("deliveries and reads checked", [part.measures.get("delivered") for part in parts])
    add("died with the consumer that had taken them", [p.measures.get("died_with_consumer") for p in parts])
    add("gave way, where that is the policy", [part.measures.get("dropped") for part in parts])
    for kind, label in OUTCOMES.items():
        add(
            label.upper() if kind in ("lost", "doubled", "damaged", "torn") else label,
            [part.findings.get(kind, 0) for part in parts],
        )
    for label, which in (
        ("longest stall, ms", "net_stalls_ms"),
        ("its wait for a core included, ms", "stalls_ms"),
        ("a mere sleeper woke late by, ms", "noise_ms"),
    ):
        cells, longest = [], 0.0
        for part in parts:
            stalls = getattr(part, which)
            longest = max(longest, stalls.get("max", 0.0))
            cells.append(f"{stalls['max']:.1f}" if stalls else "")
        table.append([label, *cells, f"{longest:.1f}"])
    cells = [f"{part.net_stalls_ms['p99']:.3f}" if part.net_stalls_ms else "" for part in parts]
    table.append(["99 % of operations within, ms", *cells, ""])
    cells, hit, there = [], 0, 0
    for part in parts:
        reached = sum(1 for point in part.points.values() if point["kills"])
        hit, there = hit + reached, there + len(part.points)
        cells.append(f"{reached} of {len(part.points)}" if part.points else "")
    table.append(["fault points killed at", *cells, f"{hit} of {there}"])
    cells = [
        f"{part.measures['solved']} of {part.measures['rounds']}" if "solved" in part.measures else ""
        for part in parts
    ]
    table.append(["runs that solved their task", *cells, "".join(cells)])
    return table


def table(parts: list[PartResult], title: str) -> Table:
    from rich.table import Table

    result = Table(title=title)
    result.add_column("", no_wrap=True)
    for part in parts:
        result.add_column(part.name, justify="right")
    result.add_column("all", justify="right")
    for label, *cells in rows(parts):
        section = label.isupper()
        result.add_row(label.lower() if section else label, *cells, style="bold" if section else "")
        if label in ("KILLS", "STOPS", "gave way, where that is the policy", "anything else"):
            result.add_section()
    return result


def markdown(parts: list[PartResult]) -> str:
    lines = ["| | " + " | ".join([*(TITLES[part.name] for part in parts), "all"]) + " |"]
    lines.append("| --- |" + " ---: |" * (len(parts) + 1))
    for label, *cells in rows(parts):
        if label.isupper():
            label, cells = f"**{label.lower()}**", [f"**{cell}**" if cell else "" for cell in cells]
        lines.append("| " + " | ".join([label, *cells]) + " |")
    return "\n".join(lines) + "\n"
