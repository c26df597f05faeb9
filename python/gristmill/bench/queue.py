"""`gristmill bench queue`: gm.Queue beside multiprocessing.Queue, faster-fifo and ZeroMQ in the same run."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from gristmill.bench import machine, result
from gristmill.bench.peers import PEERS, PeerMissingError, default_folder
from gristmill.bench.train import RunFailedError, last_json, run_limited

_DRIVER = Path(__file__).resolve().parent / "drivers" / "run_queue.py"
_LIMIT_S = 900
# producers, consumers, messages of each producer; times the best peer with get_many that we promise.
ROWS = (
    (1, 1, 200_000, 10),
    (1, 10, 200_000, 8),
    (10, 1, 100_000, 8),
    (3, 20, 100_000, 6),
    (20, 3, 50_000, 6),
    (20, 20, 50_000, 6),
)
SIZES = ((4096, 100_000), (65_536, 20_000), (1 << 20, 1500), (16 << 20, 60))
# What two plain copies of a payload allow. In one process they go through its own caches; between two
# processes, through a ring of the queue's size, each line moves from core to core, as in a queue.
_ONE, _TWO = "two memcpys, one process", "two memcpys, two processes"
_THEIRS = ("faster-fifo", "zmq-tcp", "zmq-ipc")


@dataclass
class Contestant:
    """One queue in one test."""

    title: str
    arguments: tuple[str, ...]
    ours: bool = False
    runs: list[float] = field(default_factory=list)
    extra: list[dict[str, Any]] = field(default_factory=list)
    missing: str = ""


@dataclass
class Test:
    """Contestants whose figures are compared."""

    title: str
    unit: str
    key: str  # of the driver's result
    less_is_better: bool
    contestants: list[Contestant]
    # (ours, peers, at least so many times as good as the best of them)
    targets: list[tuple[str, tuple[str, ...], float]]

    def figure(self, title: str) -> float | None:
        runs = next(c for c in self.contestants if c.title == title).runs
        return median(runs) if runs else None

    def outcomes(self) -> list[dict[str, Any]]:
        """Each target: the ratio of medians, and whether it is met; None without a figure."""
        found = []
        for ours, peers, at_least in self.targets:
            mine = self.figure(ours)
            theirs = [f for f in map(self.figure, peers) if f]
            ratio = None
            if mine and theirs:
                ratio = min(theirs) / mine if self.less_is_better else mine / max(theirs)
            met = None if ratio is None else ratio >= at_least
            found.append({"ours": ours, "against": peers, "ratio": ratio, "target": at_least, "met": met})
        return found


def all_tests(scale: float) -> list[Test]:
    """The whole table. scale: of the numbers of messages."""

    def times(count: int) -> int:
        return max(1000, int(count * scale) // 1000 * 1000)

    tests = []
    for producers, consumers, messages, at_least in ROWS:
        numbers = (str(producers), str(consumers), str(times(messages)))
        tests.append(
            Test(
                f"{producers} × {consumers}, {times(messages):,} messages each",
                "s",
                "seconds",
                True,
                [
                    Contestant("gristmill get_many", ("table", "gristmill", *numbers, "1"), True),
                    Contestant("gristmill get_many(1000)", ("table", "gristmill", *numbers, "1000"), True),
                    Contestant("gristmill get", ("table", "gristmill", *numbers, "0"), True),
                    Contestant("multiprocessing", ("table", "multiprocessing", *numbers, "0")),
                    Contestant("faster-fifo get", ("table", "faster-fifo", *numbers, "0")),
                    Contestant("faster-fifo get_many", ("table", "faster-fifo", *numbers, "1")),
                ],
                [
                    (
                        "gristmill get_many",
                        ("multiprocessing", "faster-fifo get", "faster-fifo get_many"),
                        at_least,
                    ),
                    ("gristmill get", ("faster-fifo get",), 5),
                ],
            )
        )
    many, few = str(times(10_000_000)), str(times(500_000))
    tests.append(
        Test(
            f"{times(10_000_000):,} × b'MESSAGE', 1 → 1",
            "messages/s",
            "per_s",
            False,
            [
                Contestant("gristmill put, get_many", ("stream", "gristmill", many, "0", "0"), True),
                Contestant("gristmill put_many, raw", ("stream", "gristmill", many, "1", "1"), True),
                Contestant("ZeroMQ tcp", ("stream", "zmq-tcp", many, "0", "0")),
                Contestant("ZeroMQ ipc", ("stream", "zmq-ipc", many, "0", "0")),
                Contestant(
                    f"multiprocessing ({times(500_000):,})", ("stream", "multiprocessing", few, "0", "0")
                ),
            ],
            [
                ("gristmill put, get_many", ("ZeroMQ tcp", "ZeroMQ ipc"), 2.5),
                ("gristmill put_many, raw", ("ZeroMQ tcp", "ZeroMQ ipc"), 8),
            ],
        )
    )
    for size, count in SIZES:
        numbers = (str(size), str(max(20, int(count * scale))))
        tests.append(
            Test(
                f"arrays of {size // 1024:,} KiB, 1 → 1",
                "B/s",
                "per_s",
                False,
                [
                    Contestant("gristmill get_many", ("bandwidth", "gristmill", *numbers, "0"), True),
                    Contestant("gristmill copy=False", ("bandwidth", "gristmill", *numbers, "1"), True),
                    Contestant(_ONE, ("bandwidth", "memcpy", *numbers, "0")),
                    Contestant(_TWO, ("bandwidth", "memcpy-2", *numbers, "0")),
                    Contestant("multiprocessing", ("bandwidth", "multiprocessing", *numbers, "0")),
                    Contestant("faster-fifo", ("bandwidth", "faster-fifo", *numbers, "0")),
                ],
                [
                    ("gristmill get_many", (_TWO,), 0.8),
                    ("gristmill get_many", (_ONE,), 0.8),
                    ("gristmill copy=False", ("gristmill get_many",), 1.5),
                ],
            )
        )
    rounds = str(max(500, int(5000 * scale)))
    for case, title, targets in (
        ("round-trip", "round trip between two sleepers, p50", [("gristmill", ("faster-fifo",), 4)]),
        ("ping-pong", "round trip without a pause, p50", []),
    ):
        tests.append(
            Test(
                title,
                "µs",
                "p50_us",
                True,
                [
                    Contestant("gristmill", (case, "gristmill", rounds), True),
                    Contestant("multiprocessing", (case, "multiprocessing", rounds)),
                    Contestant("faster-fifo", (case, "faster-fifo", rounds)),
                ],
                targets,
            )
        )
    return tests


def _run(contestant: Contestant, key: str, peer_python: Path) -> None:
    theirs = contestant.arguments[1] in _THEIRS
    python = str(peer_python) if theirs else sys.executable
    figures = last_json(
        run_limited([python, str(_DRIVER), *contestant.arguments], _LIMIT_S, dict(os.environ)), "RESULT "
    )
    contestant.runs.append(figures[key])
    contestant.extra.append(figures)


def as_report(tests: list[Test], details: dict[str, Any]) -> result.Report:
    """In the form of every benchmark."""
    made = result.Report("queue", [], details=details | {"tests": [asdict(test) for test in tests]})
    for test in tests:
        made.measurements += [
            result.Measurement(test.title, c.title, c.ours, test.unit, test.less_is_better, c.runs, c.missing)
            for c in test.contestants
        ]
        for ours, peers, at_least in test.targets:
            made.compare(test.title, ours, peers, at_least)
    return made


def bench_queue(
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each; 3 at least for figures to rely on.")] = 3,
    scale: Annotated[float, typer.Option(min=0.001, help="Times the messages of the full table.")] = 1.0,
    only: Annotated[str, typer.Option(help="Tests whose title has this text.")] = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every run's figures here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the ratios into this file (.png, .svg).")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page that opens without a network.")] = None,
    core_bench: Annotated[
        Path | None, typer.Option(help="message_queue_bench of a build with tests, for the C++ figures.")
    ] = None,
) -> None:
    """gm.Queue beside multiprocessing.Queue, faster-fifo and ZeroMQ: rates, bandwidth, round trips, ratios.

    The contestants take turns, repeat by repeat. A peer that is not there is installed into .venv-peers
    first; one that cannot be installed is reported as missing.
    """
    from rich.console import Console

    console = Console(stderr=True)
    peer = PEERS["queue"]
    missing = ""
    if not peer.installed(default_folder()):
        console.print(f"{peer.title}: installing into {default_folder() / peer.key} …", highlight=False)
    try:
        peer.install(default_folder())
    except PeerMissingError as error:
        missing = str(error)
    tests = [test for test in all_tests(scale) if only in test.title]
    failed = False
    for test in tests:
        console.print(test.title, highlight=False)
        for _ in range(repeats):
            for contestant in test.contestants:
                if contestant.arguments[1] in _THEIRS and missing:
                    contestant.missing = missing
                    continue
                try:
                    _run(contestant, test.key, peer.python(default_folder()))
                except RunFailedError as error:
                    contestant.missing = f"failed: {error}"
                    failed = failed or contestant.ours
        for contestant in test.contestants:
            console.print(f"  {contestant.title}: {_spread(contestant, test)}", highlight=False, markup=False)
    _print(tests, repeats)
    core = _core_figures(core_bench)
    print(core)
    print(machine.sentence())
    result.finish(
        as_report(tests, {"repeats": repeats, "scale": scale, "core": core}), json_file, html_file=html
    )
    if plot:
        _plot(tests, plot)
    if failed:
        raise typer.Exit(1)


def _amount(value: float, unit: str) -> str:
    if unit == "B/s":
        return f"{value / 1e6:,.0f} MB/s"
    if unit == "messages/s":
        return f"{value / 1e6:.2f} M/s"
    return f"{value:.3f} {unit}" if unit == "s" else f"{value:.1f} {unit}"


def _spread(contestant: Contestant, test: Test) -> str:
    if not contestant.runs:
        return f"missing: {contestant.missing}"
    low, high = min(contestant.runs), max(contestant.runs)
    middle, least, most = (_amount(value, test.unit) for value in (median(contestant.runs), low, high))
    return f"{middle} ({least} – {most})"


def _print(tests: list[Test], repeats: int) -> None:
    from rich.console import Console
    from rich.table import Table

    drawn = Table(
        title=f"gm.Queue: median (least – most) of {repeats}; ratio against the best peer", show_lines=True
    )
    for column in ("test", "figures", "ratio", "target", ""):
        drawn.add_column(column, no_wrap=column == "ratio")
    for test in tests:
        figures = "\n".join(f"{c.title}: {_spread(c, test)}" for c in test.contestants)
        outcomes = test.outcomes()
        drawn.add_row(
            test.title,
            figures,
            "\n".join(
                f"{o['ours']}: {o['ratio']:.2f}×" if o["ratio"] else f"{o['ours']}: –" for o in outcomes
            ),
            "\n".join(f"{o['target']:g}×" for o in outcomes),
            "\n".join({True: "met", False: "missed", None: "–"}[o["met"]] for o in outcomes),
        )
    Console(width=max(Console().width, 150)).print(drawn)


# Promised figures of message_queue_bench: (what, the row's beginning, unit, target, less is better).
_CORE_TARGETS = (
    ("put and get_many of 22 bytes in one process", "put one  get many", "ns", 25, True),
    ("two processes", "1 x  1 put one  get many", "M messages/s", 10, False),
)


def core_outcomes(text: str) -> list[str]:
    """Each promised figure in what message_queue_bench printed, and whether it is met."""
    found = []
    for what, row, unit, target, less in _CORE_TARGETS:
        figure = re.search(rf"^\s*{row}\s+([\d.]+)", text, re.MULTILINE)
        if figure is None:
            found.append(f"{what}: not measured")
            continue
        value = float(figure[1])
        met = value <= target if less else value >= target
        bound = "at most" if less else "at least"
        found.append(f"{what}: {value:g} {unit}, {bound} {target:g}: {'met' if met else 'missed'}")
    return found


def _is_release(build: Path) -> bool:
    """Sanitizers' and debug builds tell nothing of the speed."""
    cache = build / "CMakeCache.txt"
    return cache.is_file() and "\nCMAKE_BUILD_TYPE:STRING=Release\n" in cache.read_text()


def _core_figures(given: Path | None) -> str:
    """What message_queue_bench prints: the C++ queue without Python. The newest of a release build."""
    root = Path(__file__).resolve().parents[3]
    found = [
        path
        for path in root.glob("build/*/tests/benchmarks/message_queue_bench")
        if _is_release(path.parents[2])
    ]
    program = given or max(found, key=lambda path: path.stat().st_mtime, default=None)
    if program is None:
        return "C++: no release build has message_queue_bench (make setup, or --core-bench)"
    try:
        text = run_limited([str(program)], _LIMIT_S, dict(os.environ)).rstrip()
    except (OSError, RunFailedError) as error:
        return f"C++: {program} failed: {error}"
    return "\n".join([f"C++, {program}:", text, *core_outcomes(text)])


def _plot(tests: list[Test], path: Path) -> None:
    """How many times the best peer, with the target's mark. Needs matplotlib (the bench extra)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = [(test.title, o) for test in tests for o in test.outcomes() if o["ratio"]][::-1]
    figure, axis = plt.subplots(figsize=(10, 0.4 * len(shown) + 1.2), layout="constrained")
    for row, (_, outcome) in enumerate(shown):
        axis.barh(row, outcome["ratio"], color="#2a78b5" if outcome["met"] else "#c05020")
        axis.plot([outcome["target"]] * 2, [row - 0.4, row + 0.4], color="#202020")
    axis.set_yticks(
        range(len(shown)), [f"{title}: {o['ours'].removeprefix('gristmill ')}" for title, o in shown]
    )
    axis.set_xscale("log")
    axis.set_title("times the best peer; the line is the target", fontsize=11)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
