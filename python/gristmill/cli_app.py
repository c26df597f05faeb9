"""The commands and their options, for typer."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from gristmill.console import styled

app = typer.Typer(
    name="gristmill",
    help="Reinforcement learning through shared memory: rollout workers feed a learner.",
    epilog="Start with: gristmill train configs/cartpole.yaml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Config = Annotated[
    str, typer.Argument(metavar="CONFIG", help="A YAML file; `gristmill schema` describes it.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Options instead of the file's: learner.gamma=0.98"),
]
Run = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run's folder, its name under runs/, or one of its checkpoints."),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON object, the last line of stdout.")
]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Run the code that the run's env.id names, though it may be another's."),
]


def _version(wanted: bool) -> None:
    if wanted:
        from gristmill import __version__

        print(f"gristmill {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(epilog="Example: gristmill train configs/cartpole.yaml seed=1 learner.learning_rate=3e-4")
def train(
    config: Config,
    overrides: Overrides = None,
    stop_at_return: Annotated[
        float | None,
        typer.Option(metavar="R", help="Stop when the mean return of 100 episodes reaches R."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The run's name (run.name).")] = None,
    as_json: Json = False,
) -> None:
    """Train from a configuration. Ctrl-C ends it in an orderly way, with a checkpoint."""
    from gristmill import commands

    given = list(overrides or [])
    if stop_at_return is not None:
        given.append(f"train.stop_at_return={stop_at_return}")
    if name is not None:
        given.append(f"run.name={name}")
    raise typer.Exit(commands.train(config, given, as_json))


@app.command(epilog="Example: gristmill resume runs/cartpole-s0-20260101-120000")
def resume(run: Run, overrides: Overrides = None, trust: Trust = False, as_json: Json = False) -> None:
    """Go on with a run from its newest checkpoint, as if it had not stopped."""
    from gristmill import commands

    raise typer.Exit(commands.resume(run, list(overrides or []), as_json, trust))


@app.command("eval", epilog="Example: gristmill eval runs/lander --episodes 20 --video lander.gif")
def evaluate(
    run: Run,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes to play.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Of the environments and of sampling.")] = 0,
    sample: Annotated[
        bool, typer.Option("--sample", help="Sample actions; otherwise the most probable.")
    ] = False,
    render: Annotated[bool, typer.Option("--render", help="Show one environment in a window.")] = False,
    video: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Record one environment: .gif, .webp or .png (animated)."),
    ] = None,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Play episodes with a run's newest policy and print their returns."""
    # Read when libtorch is loaded: with one small policy, a second thread would only wait for the first.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from gristmill import commands_eval

    raise typer.Exit(commands_eval.evaluate(run, episodes, seed, not sample, render, video, as_json, trust))


@app.command("config", epilog="Example: gristmill config configs/cartpole.yaml workers.count=4")
def show_config(
    config: Config,
    overrides: Overrides = None,
    as_yaml: Annotated[
        bool, typer.Option("--yaml", help="As a config file with every option and its help.")
    ] = False,
) -> None:
    """Print the configuration that a run would use, and where each value comes from."""
    from gristmill import _core

    resolved = _core.load_config(config, list(overrides or []))
    if as_yaml:
        print(resolved.dump(with_help=True), end="")
        return
    width = max(len(line) for line in _lines(resolved))
    for line, source in zip(_lines(resolved), _sources(resolved), strict=True):
        print(f"{line:{width}}  {styled('# ' + source, '2', sys.stdout)}" if source else line)


@app.command(epilog="Example: gristmill schema > gristmill.schema.json")
def schema() -> None:
    """Print the JSON Schema of config files, for editors."""
    from gristmill import _core

    print(_core.config_schema())


@app.command(epilog="Example: gristmill options learner")
def options(
    section: Annotated[str | None, typer.Argument(help="Only this section's: learner, workers, …")] = None,
) -> None:
    """List every option: default, what it may be, what it does."""
    from gristmill import _core

    for option in _core.config_options():
        if section is None or option.key.startswith(section + "."):
            print(f"{option.key} = {option.value}")
            print(styled(f"    {option.help} ({option.expected})", "2", sys.stdout))


@app.command(epilog="Example: gristmill plot runs/sweep --out curves.html")
def plot(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN…", help="Runs' folders, their names under runs/, or folders of runs."),
    ],
    out: Annotated[
        str, typer.Option(metavar="FILE", help="A .png or .html file; without an ending, both.")
    ] = "learning_curves",
    metric: Annotated[str, typer.Option(help="The figure to draw.")] = "rollout/ep_rew_mean",
    x: Annotated[str, typer.Option(help="frames or seconds.")] = "frames",
) -> None:
    """Draw learning curves: for runs that differ in their seeds alone, their mean and spread."""
    from gristmill.curves import plot as draw

    for path in draw(runs, out, metric, x):
        print(path)


@app.command(epilog="Example: gristmill clean")
def clean() -> None:
    """Remove shared memory that killed runs left behind; every start of a run does it, too."""
    from gristmill import _core

    removed = _core.sweep_segments()
    for segment in removed:
        print(f"removed {segment.name} ({segment.bytes:,} bytes, process {segment.pid} is dead)")
    living = _core.list_segments()
    for segment in living:
        print(f"in use  {segment.name} ({segment.bytes:,} bytes, by process {segment.pid})")
    if not removed and not living:
        print("nothing there")


@app.command(
    epilog="Example: gristmill profile configs/cartpole.yaml --html profile.html, or a grid: "
    "gristmill profile configs/cartpole.yaml --sweep workers.count=1,2,4 workers.envs_per_worker=16,64"
)
def profile(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="A YAML file; or a run that goes on: name, folder or pid.")
    ],
    overrides: Overrides = None,
    seconds: Annotated[float, typer.Option(min=0.5, max=3600, help="How long to measure.")] = 5.0,
    warmup: Annotated[float, typer.Option(min=0, max=600, help="Seconds of learning before that.")] = 2.0,
    as_json: Json = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page that opens without a network.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a second of every process, for ui.perfetto.dev."),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=V,V…",
            help="Measure every combination of these values; options with several values after it count too.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Of a sweep: draw it (.png, .svg).")
    ] = None,
    best: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Of a sweep: the fastest setting's config; CONFIG_best.yaml."),
    ] = None,
) -> None:
    """Run a configuration for a while, or watch a run: where time goes, what bounds it, what to change."""
    from gristmill import commands_profile

    given = list(overrides or [])
    if sweep:
        raise typer.Exit(
            commands_profile.sweep(config, given, sweep, seconds, warmup, as_json, html, plot, best)
        )
    raise typer.Exit(commands_profile.profile(config, given, seconds, warmup, as_json, html, trace))


@app.command(epilog="Example: gristmill top, or for scripts: gristmill top --once --json")
def top(
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="A run's name, its folder or its pid; all when left out."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once, over one interval, and end.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --once: print a list of runs as JSON.")
    ] = False,
    interval: Annotated[float, typer.Option(min=0.1, max=60, help="Seconds between looks.")] = 1.0,
) -> None:
    """Watch the runs that go on, from another terminal. It only reads: no run is disturbed."""
    from gristmill.top import top as show

    raise typer.Exit(show(run, once or as_json, as_json, interval))


# Benchmarks and the fault campaign have options of their own, and what they import only they need.
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.command(
    context_settings=_PASSED_ON, add_help_option=False, epilog="Example: gristmill bench train --repeats 3"
)
def bench(context: typer.Context) -> None:
    """Benchmarks beside the best alternatives: bench box, queue, timers, train, pipeline; all; compare."""
    bench_app()(context.args or ["--help"], prog_name="gristmill bench")


@app.command(
    context_settings=_PASSED_ON,
    add_help_option=False,
    epilog="Example: gristmill soak --minutes 10 --json soak.json",
)
def soak(context: typer.Context) -> None:
    """Kill and stop processes at every step of every operation, and count what is lost."""
    soak_app()(context.args, prog_name="gristmill soak")


def bench_app() -> typer.Typer:
    """`gristmill bench` and its commands."""
    from gristmill.bench.box import bench_box
    from gristmill.bench.compare import bench_compare
    from gristmill.bench.everything import bench_all
    from gristmill.bench.pipeline import bench_pipeline
    from gristmill.bench.queue import bench_queue
    from gristmill.bench.timers import bench_timers
    from gristmill.bench.train import bench_train

    benches = typer.Typer(
        help="Benchmarks beside the best alternatives, in the same run.",
        epilog="Example: gristmill bench train --repeats 3",
        add_completion=False,
    )
    benches.callback()(lambda: None)
    for name, command, example in (
        ("train", bench_train, "train --repeats 3 --json train.json --plot train.png"),
        ("queue", bench_queue, "queue --repeats 3 --html queue.html"),
        ("box", bench_box, "box --repeats 3 --json box.json --plot box.png"),
        ("timers", bench_timers, "timers --repeats 1"),
        ("pipeline", bench_pipeline, "pipeline --only profile_atari"),
        ("all", bench_all, "all --folder before"),
        ("compare", bench_compare, "compare before/box.json after/box.json"),
    ):
        benches.command(name, epilog=f"Example: gristmill bench {example}")(command)
    return benches


def soak_app() -> typer.Typer:
    """`gristmill soak`."""
    from gristmill.soak.command import soak as command

    alone = typer.Typer(add_completion=False)
    alone.command(epilog="Example: gristmill soak --minutes 10 --peers --json soak.json")(command)
    return alone


def _lines(resolved) -> list[str]:
    return resolved.dump().splitlines()


def _sources(resolved) -> list[str]:
    """Where each line's value came from; "" for a section's line."""
    sources, section = [], ""
    for line in _lines(resolved):
        name = line.strip().partition(":")[0]
        if line.endswith(":"):
            section = name + "."
            sources.append("")
        else:
            sources.append(resolved.sources[(section if line.startswith(" ") else "") + name])
    return sources
