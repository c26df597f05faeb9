"""`gristmill bench train`: learning CartPole, ours beside the peers, alternated in the same run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from gristmill.bench import machine, report, result
from gristmill.bench.peers import PEERS, Peer, PeerMissingError, default_folder

# Those that train.
_TRAINERS = [key for key, peer in PEERS.items() if peer.torch]
# Ours: each configuration as it is shipped.
OURS = {
    "cartpole": "gristmill, cartpole",
    "cartpole_throughput": "gristmill, cartpole_throughput",
    "cartpole_gymnasium": "gristmill, cartpole_gymnasium",
}


@dataclass
class Contestant:
    """One row of the table: what it is, and what each repeat gave."""

    key: str
    title: str
    settings: str
    ours: bool
    missing: str = ""
    runs: list[dict[str, Any]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


class RunFailedError(Exception):
    """A run ended without a result; the message holds the end of its output."""


def run_limited(command: list[str], limit_s: float, env: dict[str, str]) -> str:
    """The output of a command that must end within limit_s; its whole process group is ended otherwise."""
    process = subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise RunFailedError(f"still running after {limit_s:.0f} s: ended") from None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    if process.returncode:
        raise RunFailedError(
            f"exit code {process.returncode}: " + " | ".join(output.strip().splitlines()[-3:])
        )
    return output


def last_json(output: str, prefix: str = "") -> dict[str, Any]:
    """The last line of `output` that is `prefix` and a JSON object."""
    for line in reversed(output.splitlines()):
        if line.startswith(prefix + "{"):
            return json.loads(line[len(prefix) :])
    raise RunFailedError("it printed no result: " + " | ".join(output.strip().splitlines()[-3:]))


def gristmill_command() -> list[str]:
    """How a user would start gristmill: the console script beside this Python."""
    script = Path(sys.executable).parent / "gristmill"
    return (
        [str(script)] if script.exists() else [sys.executable, "-c", "from gristmill.cli import main; main()"]
    )


def run_ours(config: Path, seed: int, limit_s: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="gristmill-bench-") as scratch:
        command = [*gristmill_command(), "train", str(config), f"seed={seed}", f"run.dir={scratch}", "--json"]
        return last_json(run_limited(command, limit_s, dict(os.environ)))


def run_peer(peer: Peer, folder: Path, seed: int, seconds: float, limit_s: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="gristmill-bench-") as scratch:
        env = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "BENCH_SECONDS": str(seconds),
            "BENCH_LIMIT": str(limit_s),
            "BENCH_LAUNCH": str(time.time()),
        }
        # Start-up and the end come on top of the training time that the driver watches.
        output = run_limited(peer.command(folder, seed, Path(scratch)), limit_s + 60, env)
        return last_json(output, "RESULT ")


def install_peers(keys: list[str], say: Callable[[str], None]) -> list[Contestant]:
    contestants = []
    for key in keys:
        peer = PEERS[key]
        contestant = Contestant(key, peer.title, peer.settings, ours=False)
        if not peer.installed(default_folder()):
            say(f"{peer.title} is not installed yet: installing it into {default_folder() / peer.key} …")
        try:
            peer.install(default_folder())
        except PeerMissingError as error:
            contestant.missing = str(error)
        contestants.append(contestant)
    return contestants


def bench_train(
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each; 3 at least for figures to rely on.")] = 3,
    seconds: Annotated[
        float, typer.Option(min=7, help="A peer trains at least so long, for its frames/s.")
    ] = 20,
    limit: Annotated[
        float, typer.Option(min=10, help="At most so long: then 475 counts as not reached.")
    ] = 60,
    peers: Annotated[str, typer.Option(help=f"Of: {', '.join(_TRAINERS)}. Empty: none.")] = "sf,sb3",
    ours: Annotated[str, typer.Option(help=f"Of: {', '.join(OURS)}.")] = ",".join(OURS),
    configs: Annotated[Path, typer.Option(help="The folder of our configurations.")] = Path("configs"),
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the report here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the table into this file (.png, .svg).")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page that opens without a network.")] = None,
) -> None:
    """Learn CartPole beside the peers in the same run: frames/s, seconds to a mean return of 475, ratios.

    The contestants take turns, seed by seed. A peer that is not there is installed into .venv-peers
    first; one that cannot be installed is reported as missing.
    """
    from rich.console import Console

    console = Console(stderr=True)
    peer_keys = _chosen(peers, _TRAINERS, "--peers")
    our_keys = _chosen(ours, list(OURS), "--ours")
    for key in our_keys:
        if not (configs / f"{key}.yaml").exists():
            raise typer.BadParameter(f"{configs / key}.yaml does not exist", param_hint="--configs")

    contestants = [Contestant(key, OURS[key], str(configs / f"{key}.yaml"), ours=True) for key in our_keys]
    contestants += install_peers(peer_keys, console.print)
    for repeat in range(repeats):
        for contestant in contestants:
            if contestant.missing:
                continue
            console.print(f"repeat {repeat + 1} of {repeats}: {contestant.title} …", highlight=False)
            try:
                if contestant.ours:
                    figures = run_ours(configs / f"{contestant.key}.yaml", repeat, limit)
                else:
                    figures = run_peer(PEERS[contestant.key], default_folder(), repeat, seconds, limit)
            except RunFailedError as error:
                contestant.failures.append(f"seed {repeat}: {error}")
                console.print(f"  failed: {error}", style="red", highlight=False, markup=False)
                continue
            contestant.runs.append(figures)
            console.print("  " + report.one_run(figures), highlight=False)

    # Wide enough for the table wherever it goes: a file or a pipe has no width of its own.
    Console(width=max(Console().width, 140)).print(report.table(contestants, repeats))
    for contestant in contestants:
        print(f"{contestant.title}: {contestant.settings}")
    print(machine.sentence())
    result.finish(as_report(contestants, repeats), json_file, html_file=html)
    if plot:
        report.plot(contestants, plot)
    if any(c.failures for c in contestants):
        raise typer.Exit(1)


def as_report(contestants: list[Contestant], repeats: int) -> result.Report:
    """In the form of every benchmark. A run that was not solved has no time to be solved."""
    made = result.Report(
        "train", [], details={"repeats": repeats, "contestants": [asdict(c) for c in contestants]}
    )
    tests = (
        ("frames/s while learning", "frames/s", False, report.fps),
        ("from launch to a mean return of 475", "s", True, report.seconds_to_solve),
    )
    for title, unit, less_is_better, figures in tests:
        for c in contestants:
            values = figures(c)
            missing = "" if values else c.missing or "not reached"
            made.measurements.append(
                result.Measurement(title, c.title, c.ours, unit, less_is_better, values, missing)
            )
        for c in contestants:
            for peer in contestants:
                if c.ours and not peer.ours:
                    made.compare(title, c.title, [peer.title])
    return made


def _chosen(text: str, known: list[str], option: str) -> list[str]:
    keys = [key.strip() for key in text.split(",") if key.strip()]
    for key in keys:
        if key not in known:
            raise typer.BadParameter(f"{key!r} is not one of {', '.join(known)}", param_hint=option)
    return keys
