"""`gristmill bench pipeline`: how fast trajectories go from environment to learner, beside what is possible.

The configurations profile_*.yaml have synthetic environments, whose cost is known, and learn nothing. What a
frame must cost the core of a worker at least, whoever moves it, is

    step_us                          the environment's step, as configured
    + write                          memset of one observation into the worker's buffer
    + copy / unroll                  memcpy of one trajectory, unroll + 1 observations, into the queue's ring

and the limit is min(workers, cores) / cost. Writing and copying are measured in the same run, by the same
kind of code on the same sizes: a buffer and a ring (in shared pages that are there already) as large as the
run's, so that the caches help as much as they do there; before and after each measurement of the pipeline,
the faster of the two, and of each the time that a tenth of the rounds stayed below. So a machine that is
disturbed lowers the pipeline's figure, not the limit. Counted as nothing: actions (there is no network),
rewards, episodes' ends, the first observation carried over, claiming and committing places, heartbeats,
counters, and the learner, which has a core of its own as long as there are more cores than workers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from gristmill import _core
from gristmill.bench import result
from gristmill.profiling import measure
from gristmill.profiling.text import seconds_text

CONFIGS = ("profile_small", "profile_atari", "profile_large")


@dataclass
class Limit:
    """Of one configuration, in this moment of this machine."""

    step_s: float  # of a frame
    write_s: float  # …
    copy_s: float  # … with its share of the trajectory's last observation
    at_once: int  # workers that have a core

    @property
    def frames_per_s(self) -> float:
        return self.at_once / (self.step_s + self.write_s + self.copy_s)

    def faster(self, other: Limit) -> Limit:
        return Limit(
            self.step_s, min(self.write_s, other.write_s), min(self.copy_s, other.copy_s), self.at_once
        )


def observation_bytes(values: dict[str, Any]) -> int:
    """Of one step of a synthetic environment."""
    kwargs = json.loads(values["env.kwargs"])
    shape = kwargs.get("observation", [4])
    return int(np.prod(shape)) * (1 if kwargs.get("dtype") == "uint8" else 4)


def measure_limit(values: dict[str, Any], seconds: float = 0.5) -> Limit:
    """What the workers could do at most if they did nothing but step, write and copy observations."""
    unroll = values["workers.unroll"]
    write_ns, copy_ns = _core.memory_speed(
        observation_bytes(values),
        values["workers.envs_per_worker"],
        unroll,
        values["queue.capacity"],
        seconds,
    )
    step_us = json.loads(values["env.kwargs"]).get("step_us", 0)
    at_once = min(values["workers.count"], measure.usable_cores())
    return Limit(step_us * 1e-6, write_ns * 1e-9, copy_ns * 1e-9 / unroll, at_once)


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
            before = measure_limit(values)
            found = measure.profile(path, [], seconds, warmup=0.5)
            limit = before.faster(measure_limit(values))
            frames = found.whole.frames_per_s
            for contestant, value in (
                ("gristmill", frames),
                ("limit", limit.frames_per_s),
                ("gristmill, observations", frames * frame),
                ("memcpy", frame / limit.copy_s),
            ):
                rows[contestant].values.append(value)
            parts = ", ".join(
                f"{name} {seconds_text(cost)}"
                for name, cost in (
                    ("step", limit.step_s),
                    ("write", limit.write_s),
                    ("copy", limit.copy_s),
                )
            )
            console.print(
                f"  {frames:,.0f} frames/s, limit {limit.frames_per_s:,.0f} ({parts})",
                highlight=False,
                soft_wrap=True,
            )
        report.measurements += rows.values()
        report.compare(name, "gristmill", ["limit"], 0.8 if name == "profile_atari" else None)
    return report
