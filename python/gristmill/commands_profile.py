"""`profile`: a short run, or one that goes on, measured: where its time goes, and what bounds it. Or a grid
of short ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gristmill._core import ConfigError
from gristmill.console import FAILED, OK

if TYPE_CHECKING:
    from gristmill.top import Watched


def profile(
    config: str,
    overrides: list[str],
    seconds: float,
    warmup: float,
    as_json: bool,
    html: Path | None,
    trace: Path | None,
) -> int:
    """Returns the exit code."""
    from rich.console import Console

    from gristmill.profiling import measure, text

    for path in (html, trace):
        if path is not None and not path.resolve().parent.is_dir():
            raise ConfigError(f"{path}: no folder {path.resolve().parent}")
    console = Console(stderr=True)

    def say(line: str) -> None:
        console.print(line, style="dim", highlight=False, markup=False)

    trace_s = 1.0 if html or trace else 0.0
    run = _going_on(config)
    if run is not None and overrides:
        raise ConfigError(f"{config} is a run that goes on: {overrides[0]} cannot be changed in it any more")
    try:
        if run is None:
            measured = measure.profile(config, overrides, seconds, warmup, trace_s, say)
        else:
            measured = measure.profile_run(run, seconds, trace_s, say)
    except KeyboardInterrupt:
        say("interrupted: nothing is told of what was measured so far")
        raise
    if as_json:
        print(json.dumps(text.document(measured)))
    else:
        out = Console()
        text.show(measured, out if out.is_terminal else Console(width=110))
    if trace is not None and measured.trace is not None:
        from gristmill.profiling.trace import write

        write(measured.trace, trace)
        print(f"{trace}: open it at https://ui.perfetto.dev", file=sys.stderr)
    if html is not None:
        from gristmill.profiling.html import page

        html.write_text(page(measured), encoding="utf-8")
        print(f"{html}: open it in a browser", file=sys.stderr)
    return OK


def _going_on(name: str) -> Watched | None:
    """The run that this names, unless it is a file. Raises ConfigError when it names several."""
    if Path(name).is_file():
        return None
    from gristmill.top import watched_runs

    runs = watched_runs(name)
    if len(runs) > 1:
        pids = ", ".join(str(run.pid) for run in runs)
        raise ConfigError(f"{name} names {len(runs)} runs that go on; give one of their pids: {pids}")
    return runs[0] if runs else None


def sweep(
    config: str,
    overrides: list[str],
    words: list[str],
    seconds: float,
    warmup: float,
    as_json: bool,
    html: Path | None,
    plot: Path | None,
    best_config: Path | None,
) -> int:
    """words: of --sweep; overrides with several values are axes too. Returns the exit code."""
    from rich.console import Console

    from gristmill.profiling import sweep as sweeps

    fixed = [word for word in overrides if not _is_axis(word)]
    axes = sweeps.axes_of([*words, *(word for word in overrides if _is_axis(word))])
    target = best_config or Path(f"{Path(config).stem}_best.yaml")
    for path in (html, plot, target):
        if path is not None and not path.resolve().parent.is_dir():
            raise ConfigError(f"{path}: no folder {path.resolve().parent}")
    console = Console(stderr=True)
    points = sweeps.sweep(
        config,
        fixed,
        axes,
        seconds,
        warmup,
        lambda line: console.print(line, style="dim", highlight=False, markup=False),
    )
    if as_json:
        print(json.dumps(sweeps.document(points)))
    else:
        out = Console()
        (out if out.is_terminal else Console(width=110)).print(sweeps.table(points, axes))
        print(sweeps.verdict(points))
    if html is not None:
        html.write_text(sweeps.page(Path(config).name, points, axes), encoding="utf-8")
    if plot is not None:
        sweeps.plot(points, axes, plot)
    first = sweeps.best(points)
    if first is None:
        return FAILED
    sweeps.write_best(config, fixed, first, target)
    print(f"{target}: the fastest setting, to train with", file=sys.stderr)
    return OK


def _is_axis(word: str) -> bool:
    from gristmill.profiling.sweep import split_values

    return len(split_values(word.partition("=")[2])) > 1
