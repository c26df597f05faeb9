"""`gristmill bench pipeline`: how fast trajectories go from environment to learner, and what memory allows.

The configurations profile_*.yaml have synthetic environments, whose cost is known, and learn nothing. What a
frame must cost a worker is then the step's cost, writing its observation once, and copying it into the queue
once; that limit is measured with memset and memcpy in the same run, on memory of the same size.
"""

from __future__ import annotations

import ctypes
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from gristmill import _core
from gristmill.bench import result
from gristmill.profiling import measure

CONFIGS = ("profile_small", "profile_atari", "profile_large")


@dataclass
class Limit:
    """Of one configuration, in this moment of this machine."""

    frames_per_s: float
    memcpy_per_s: float  # bytes
    memset_per_s: float


def observation_bytes(values: dict[str, Any]) -> int:
    """Of one step of a synthetic environment."""
    kwargs = json.loads(values["env.kwargs"])
    shape = kwargs.get("observation", [4])
    return int(np.prod(shape)) * (1 if kwargs.get("dtype") == "uint8" else 4)


def measure_limit(values: dict[str, Any], seconds: float = 1.0) -> Limit:
    """What one worker could do at most if it did nothing but step, write and copy observations."""
    frame, unroll = observation_bytes(values), values["workers.unroll"]
    envs, capacity = values["workers.envs_per_worker"], values["queue.capacity"]
    # The sizes of the worker's buffer and of the queue's ring: whether they fit into a cache decides.
    # A trajectory's last observation is the next one's first: unroll + 1 are copied, unroll written.
    trajectory = frame * (unroll + 1)
    # Filled: a page that was never written to costs more at its first time.
    buffer = np.full((envs, trajectory), 1, np.uint8)
    ring = np.full((capacity, trajectory), 1, np.uint8)
    kwargs = json.loads(values["env.kwargs"])
    rows = buffer.reshape(envs, unroll + 1, frame)
    spent = {"memset": 0.0, "memcpy": 0.0}
    moved = {"memset": 0, "memcpy": 0}
    place = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        for t in range(1, unroll + 1):
            if frame < 4096:
                rows[:, t] = t & 0xFF
                continue
            for env in range(envs):
                ctypes.memset(buffer.ctypes.data + env * trajectory + t * frame, t & 0xFF, frame)
        middle = time.perf_counter()
        if place + envs > capacity:
            place = 0
        ring[place : place + envs] = buffer
        place += envs
        spent["memset"] += middle - begin
        spent["memcpy"] += time.perf_counter() - middle
        moved["memset"] += envs * unroll * frame
        moved["memcpy"] += buffer.nbytes
    memset, memcpy = (moved[name] / spent[name] for name in ("memset", "memcpy"))
    cost = kwargs.get("step_us", 0) * 1e-6 + frame / memset + frame * (unroll + 1) / unroll / memcpy
    return Limit(values["workers.count"] / cost, memcpy, memset)


def bench_pipeline(
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each, alternated with its limit.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.5, help="Each run is measured for so long.")] = 3.0,
    only: Annotated[str, typer.Option(help=f"Of: {', '.join(CONFIGS)}.")] = ",".join(CONFIGS),
    configs: Annotated[Path, typer.Option(help="The folder of our configurations.")] = Path("configs"),
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the report here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this file (.png, .svg).")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page that opens without a network.")] = None,
) -> None:
    """Frames and bytes a second from environments to learner, beside what memcpy and the step cost allow."""
    chosen = [name.strip() for name in only.split(",") if name.strip()]
    for name in chosen:
        if not (configs / f"{name}.yaml").exists():
            raise typer.BadParameter(f"{configs / name}.yaml does not exist", param_hint="--configs")
    report = run(chosen, configs, repeats, seconds)
    result.show(report)
    result.finish(report, json_file, plot, html)


def run(chosen: list[str], configs: Path, repeats: int, seconds: float) -> result.Report:
    from rich.console import Console

    console = Console(stderr=True)
    report = result.Report("pipeline", [], details={"configs": {}})
    for name in chosen:
        path = str(configs / f"{name}.yaml")
        values = _core.load_config(path, []).values
        report.details["configs"][name] = values
        frame = observation_bytes(values)
        rows = {
            contestant: result.Measurement(name, contestant, contestant == "gristmill", unit, False)
            for contestant, unit in (
                ("gristmill", "frames/s"),
                ("limit", "frames/s"),
                ("gristmill, observations", "B/s"),
                ("memcpy", "B/s"),
            )
        }
        rows["gristmill, observations"].ours = True
        for repeat in range(repeats):
            console.print(f"{name}: repeat {repeat + 1} of {repeats} …", highlight=False)
            limit = measure_limit(values)
            found = measure.profile(path, [], seconds, warmup=0.5)
            frames = found.whole.frames_per_s
            for contestant, value in (
                ("gristmill", frames),
                ("limit", limit.frames_per_s),
                ("gristmill, observations", frames * frame),
                ("memcpy", limit.memcpy_per_s),
            ):
                rows[contestant].values.append(value)
            console.print(f"  {frames:,.0f} frames/s, limit {limit.frames_per_s:,.0f}", highlight=False)
        report.measurements += rows.values()
        report.compare(name, "gristmill", ["limit"], 0.8 if name == "profile_atari" else None)
    return report
