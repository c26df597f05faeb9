"""The command line of `gristmill soak`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from gristmill.bench import machine
from gristmill.console import FAILED, OK, styled
from gristmill.soak import peers, primitives, report, training
from gristmill.soak.findings import PartResult

ALL_PARTS = (*primitives.PARTS, "training")


class _Progress:
    """A line every few seconds, and one at once for whatever was found."""

    def __init__(self, every_s: float = 10.0) -> None:
        self.every_s, self.told_at = every_s, time.monotonic()
        self.rounds = self.kills = self.stops = self.violations = 0

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def tell(self, event: dict[str, Any]) -> None:
        self.rounds += 1
        self.kills += event["kills"]
        self.stops += event["stops"]
        self.violations += event["violations"]
        for text in event["texts"]:
            again = f" (again: gristmill soak {event['again']})" if "again" in event else ""
            self.say(styled(f"{event['part']}, round {event['round']}: {text}{again}", "31", sys.stderr))
        if time.monotonic() - self.told_at >= self.every_s:
            self.told_at = time.monotonic()
            self.say(
                f"{event['part']}: {self.rounds} rounds, {self.kills:,} kills, {self.stops:,} stops, "
                f"{self.violations} violations"
            )


def _chosen(only: str) -> list[str]:
    parts = [name.strip() for name in only.split(",") if name.strip()] or list(ALL_PARTS)
    for part in parts:
        if part not in ALL_PARTS:
            raise typer.BadParameter(f"'{part}' is none of {', '.join(ALL_PARTS)}", param_hint="--only")
    return parts


def soak(
    minutes: Annotated[float, typer.Option(min=0, help="How long; the peers' trials come on top.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Of every choice that is made.")] = 1,
    only: Annotated[str, typer.Option(help=f"Of: {', '.join(ALL_PARTS)}. Empty: all.")] = "",
    round_number: Annotated[
        int | None, typer.Option("--round", min=0, help="Play this one round again, as a violation names it.")
    ] = None,
    training_share: Annotated[
        float, typer.Option(min=0, max=1, help="Of the time, for whole training runs.")
    ] = 0.15,
    stall_limit_ms: Annotated[
        int, typer.Option(min=1, help="A longer stall is a violation; the wait for a core does not count.")
    ] = 100,
    with_peers: Annotated[
        bool,
        typer.Option("--peers", help="Also ours beside faster-fifo, multiprocessing.Queue and sharedbox."),
    ] = False,
    peer_trials: Annotated[int, typer.Option(min=1, help="Kills of each contestant in each row.")] = 20,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all figures here.")
    ] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Write the tables here, as Markdown.")
    ] = None,
    mistake: Annotated[
        str, typer.Option(hidden=True, help="For tests: a mistake that must be found.")
    ] = "none",
) -> None:
    """Kill and stop processes at random and at every step of every operation, and count what is lost.

    Rounds over the message queue, the trajectory queue, the box and the creation of segments, then whole
    training runs. Exit status 0: nothing was lost, doubled, damaged, torn or stuck. 1: something was, and
    its seed and round are named.
    """
    chosen, progress, start = _chosen(only), _Progress(), time.monotonic()
    parts: list[PartResult] = []
    summary: dict[str, Any] = {}
    core = [part for part in chosen if part in primitives.PARTS]
    whole = "training" in chosen and (not core or (training_share > 0 and round_number is None))
    share = training_share if whole and core else 0.0
    if core:
        arguments = ["--seed", str(seed), "--only", ",".join(core), "--stall-limit-ms", str(stall_limit_ms)]
        arguments += ["--mistake", mistake]
        if round_number is not None:
            arguments += ["--round", str(round_number)]
        else:
            arguments += ["--seconds", str(max(1, round(minutes * 60 * (1 - share))))]
        found, summary = primitives.run(arguments, progress.tell)
        parts += [found[name] for name in core if name in found]
    if whole:
        seconds = minutes * 60 * (share if core else 1.0)
        parts.append(training.run(seconds, seed, None if core else round_number, progress.tell))
    seconds = time.monotonic() - start
    trials = peers.run(peer_trials, seed, progress.say) if with_peers else []

    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 130)
    violations = sum(part.violations for part in parts) + sum(t.violations for t in trials if t.ours)
    kills = sum(part.kills for part in parts)
    found = f"{violations} violation" + ("" if violations == 1 else "s")
    title = f"{kills:,} kills in {seconds / 60:.1f} minutes, seed {seed}: {found}"
    console.print(report.table(parts, title))
    for table in peers.tables(trials) if trials else []:
        console.print(table)
    for part in parts:
        for text in part.texts[:20]:
            console.print(f"{part.name}: {text}", style="red", markup=False, highlight=False)
    console.print(machine.sentence(), style="dim")
    if json_file is not None:
        figures = {
            "seed": seed,
            "seconds": seconds,
            "kills": kills,
            "stops": sum(part.stops for part in parts),
            "violations": violations,
            "machine": machine.describe(),
            "parts": {part.name: part.to_dict() for part in parts},
            "peers": [t.to_dict() for t in trials],
            "rounds": summary.get("rounds", 0),
        }
        json_file.write_text(json.dumps(figures, indent=1) + "\n")
    if markdown_file is not None:
        text = f"{title}. {machine.sentence()}.\n\n" + report.markdown(parts)
        markdown_file.write_text(text + ("\n" + peers.markdown(trials) if trials else ""))
    raise typer.Exit(FAILED if violations else OK)
