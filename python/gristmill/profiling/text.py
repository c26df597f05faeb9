"""A profile as tables for people, and as one JSON object for programs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gristmill.profiling.board import Process, Stage, Window
from gristmill.profiling.histogram import quantile
from gristmill.profiling.measure import Profile

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

TITLES = {
    "environment": "environment",
    "inference": "inference",
    "assemble": "assembling",
    "space_wait": "waiting for space",
    "copy": "copying",
    "parameters": "watching parameters",
    "batch_wait": "waiting for batches",
    "batch_view": "batch view",
    "forward": "forward",
    "loss": "advantages, loss",
    "backward": "backward",
    "optimiser": "optimiser",
    "publish": "publish",
    "log": "log",
    "learn": "learning",
}


def seconds_text(seconds: float) -> str:
    """With three digits: 1.23 ms."""
    if math.isnan(seconds):
        return "–"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def stage_table(profile: Profile) -> Table:
    """Each stage of workers (all together) and learner: share of time, p50, p99, rate."""
    from rich.table import Table

    table = Table(title=f"{profile.config_name}: where the time goes, {profile.seconds:.1f} s")
    for name in ("process", "stage"):
        table.add_column(name)
    for name in ("share", "p50", "p99", "per second"):
        table.add_column(name, justify="right")
    table.add_column("")
    for process in (profile.whole.workers, profile.whole.learner):
        title = _title(process, profile)
        for stage in process.stages:
            if stage.count or stage.seconds:
                table.add_row(title, *_cells(stage), "█" * round(stage.share * 30))
                title = ""
        table.add_row(title, "other", f"{_other(process):.1%}", "", "", "", "█" * round(_other(process) * 30))
        table.add_section()
    return table


def _title(process: Process, profile: Profile) -> str:
    if process.name == "learner":
        return "learner"
    count = profile.config["workers.count"]
    return f"{count} worker{'s' * (count != 1)}"


def _cells(stage: Stage) -> tuple[str, ...]:
    return (
        TITLES[stage.name],
        f"{stage.share:.1%}",
        seconds_text(stage.p50_s),
        seconds_text(stage.p99_s),
        f"{stage.rate:,.0f}",
    )


def _other(process: Process) -> float:
    return max(0.0, 1 - sum(stage.share for stage in process.stages))


def figures(window: Window, capacity: int) -> list[tuple[str, str]]:
    """What is not a stage."""
    latency, lag = window.parameter_latency, window.policy_lag
    return [
        ("frames/s", f"{window.frames_per_s:,.0f}"),
        ("batches/s", f"{window.batches_per_s:,.1f}"),
        ("trajectories", f"{window.trajectories_per_s:,.0f}/s, {window.bytes_per_s / 1e6:,.1f} MB/s"),
        ("copies of each", f"{1 + window.gathered_share:.2f}"),
        ("queue fill at a batch", f"p50 {quantile(window.queue_fill, 0.5):.0f} of {capacity}"),
        ("policy lag", f"p50 {quantile(lag, 0.5):.0f}, p99 {quantile(lag, 0.99):.0f} versions"),
        (
            "published to first action",
            "p50 {}, p99 {}".format(*(seconds_text(quantile(latency, q) * 1e-9) for q in (0.5, 0.99))),
        ),
        ("cores in use", f"{window.workers.cpu:.2f} by workers, {window.learner.cpu:.2f} by the learner"),
        ("restarts", str(window.restarts)),
    ]


def show(profile: Profile, console: Console) -> None:
    from rich.table import Table

    console.print(stage_table(profile))
    grid = Table.grid(padding=(0, 2))
    for name, value in figures(profile.whole, profile.config["queue.capacity"]):
        grid.add_row(f"[dim]{name}[/]", value)
    console.print(grid)
    console.print()
    console.print(profile.diagnosis.sentence, highlight=False, markup=False)


def document(profile: Profile) -> dict[str, Any]:
    """As JSON: shares are of 1, times in seconds."""
    whole, told = profile.whole, profile.diagnosis
    return {
        "config": profile.config,
        "config_name": profile.config_name,
        "cores": profile.cores,
        "seconds": profile.seconds,
        "frames_per_s": whole.frames_per_s,
        "batches_per_s": whole.batches_per_s,
        "trajectories_per_s": whole.trajectories_per_s,
        "bytes_per_s": whole.bytes_per_s,
        "copies_per_trajectory": 1 + whole.gathered_share,
        "workers": _process(whole.workers),
        "learner": _process(whole.learner),
        "policy_lag": _quantiles(whole.policy_lag),
        "queue_fill": _quantiles(whole.queue_fill),
        "parameter_latency_s": {k: _scaled(v, 1e-9) for k, v in _quantiles(whole.parameter_latency).items()},
        "restarts": whole.restarts,
        "diagnosis": {
            "bound": told.bound,
            "stage": told.stage,
            "sentence": told.sentence,
            "change": told.change,
            "gain": told.gain,
            "certainty": told.certainty,
            "agreeing": told.agreeing,
        },
        "timeline": [vars(sample) for sample in profile.samples],
    }


def _process(process: Process) -> dict[str, Any]:
    return {
        "cores": process.cpu,
        "delay_share": process.delay,
        "stages": {
            stage.name: {
                "share": stage.share,
                "count": stage.count,
                "per_s": stage.rate,
                "p50_s": _number(stage.p50_s),
                "p99_s": _number(stage.p99_s),
            }
            for stage in process.stages
        },
    }


def _quantiles(counts: Any) -> dict[str, float | None]:
    return {"p50": _number(quantile(counts, 0.5)), "p99": _number(quantile(counts, 0.99))}


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else value


def _scaled(value: float | None, by: float) -> float | None:
    return None if value is None else value * by
