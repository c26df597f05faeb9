"""Runs: started afresh or resumed, from Python and for the command line."""

from __future__ import annotations

import os
import sys

from gristmill import _core

# What only Python's users or the end of a run need is imported there: the workers start sooner.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Any

    from gristmill.config import Config, Overrides
    from gristmill.result import Result

    Metrics = Mapping[str, float]


class Reporter:
    """Who is told about a run while it goes on, on the thread that called. Does nothing itself."""

    def started(self, run_dir: str, values: Mapping[str, Any]) -> None:
        """The workers have been started. values: {dotted key: value}."""

    def metrics(self, metrics: Metrics) -> None:
        """The figures of a log interval."""

    def event(self, event: Any) -> None:
        """A _train.WorkerEvent."""

    def message(self, text: str) -> None:
        """A line for people."""

    def log(self, level: int, text: str) -> None:
        """A warning or worse that a worker said; level as in logging."""

    def closing(self) -> None:
        """The run is over: what is left is to close its files."""

    def ended(self) -> None:
        """Nothing more comes."""


def train(
    config: Config | Mapping[str, Any] | str | os.PathLike[str],
    overrides: Overrides = None,
    on_metrics: Callable[[Metrics], None] | None = None,
) -> Result:
    """Trains and returns when the run has ended.

    config: a YAML file's path, a Config, or a mapping of options. overrides: {"learner.gamma": 0.98} or
    ["learner.gamma=0.98"], applied afterwards. on_metrics gets the figures of every log.interval_s
    ("rollout/ep_rew_mean", "time/fps", …); what it raises ends the run in an orderly way and comes out
    here.

    Raises ConfigError before anything has started, RunFailedError when the run failed. Ctrl-C ends the
    run in an orderly way (checkpoint written, no process and no shared memory left) and comes out as
    KeyboardInterrupt. The GIL is free while C++ works.
    """
    from gristmill.config import resolve

    return finish(*run(resolve(config, overrides), _LoggingReporter(on_metrics)))


def resume(
    run_dir: str | os.PathLike[str],
    overrides: Overrides = None,
    on_metrics: Callable[[Metrics], None] | None = None,
    trust: bool = False,
) -> Result:
    """Goes on with a run, as if it had not stopped.

    run_dir: the run's folder, for its newest checkpoint, or a checkpoint's. overrides hold for this launch.
    trust: run the code that its env.id names (a library, a Python module) although this user has not trained
    with it on this machine; without, that is a ConfigError. Raises CheckpointError for a damaged checkpoint;
    otherwise as train().
    """
    from gristmill.config import override_texts

    return finish(*run_again(run_dir, override_texts(overrides), _LoggingReporter(on_metrics), trust))


def run(config: _core.ResolvedConfig, reporter: Reporter) -> tuple[Result, BaseException | None]:
    """A new run. Returns what it came to, and what a hook or a signal handler raised, which ended it."""
    values = config.values
    if ":" in values["env.id"]:
        from gristmill import trust

        trust.remember(values["env.id"])
    # The workers start first: they load libtorch on one core while this process loads it on another.
    with _core.Launch(config, worker_command(values["env.id"])) as launch:
        return _train(launch, values, reporter, "")


def run_again(
    run_dir: str | os.PathLike[str], overrides: list[str], reporter: Reporter, trusted: bool = False
) -> tuple[Result, BaseException | None]:
    """As run(), from a checkpoint of an earlier run."""
    from gristmill import _train as train_module
    from gristmill import trust

    folder, checkpoint = existing_run(run_dir)
    config = _core.load_config(str(folder / "config.yaml"), overrides)
    # An environment of the command line's is the user's own wish.
    trust.require(
        config.values["env.id"],
        folder / "config.yaml",
        trusted or config.sources["env.id"] == "override",
    )
    checkpoint = checkpoint or train_module.latest_checkpoint(folder)
    if checkpoint is None:
        raise _core.ConfigError(
            f"{folder}: the run has no checkpoint to resume from; start it again with "
            f"gristmill train {folder / 'config.yaml'} run.name="
        )
    launches = train_module.load_checkpoint(checkpoint).counters.get("launches", 1)
    values = config.values
    with _core.Launch(config, worker_command(values["env.id"]), str(folder), launches) as launch:
        return _train(launch, values, reporter, str(checkpoint))


def finish(result: Result, raised: BaseException | None) -> Result:
    """The result, or what ended the run as an exception."""
    if raised is not None:
        raise raised
    if result.end == "failed":
        from gristmill.result import RunFailedError

        raise RunFailedError(result)
    return result


def existing_run(run_dir: str | os.PathLike[str]) -> tuple[Path, Path | None]:
    """The folder of a run, given by its path, by its name under runs/, or by one of its checkpoints, which
    comes second then. Raises ConfigError."""
    from pathlib import Path

    for folder in (Path(run_dir), Path("runs") / run_dir):
        if (folder / "config.yaml").is_file():
            return folder, None
        if (folder.parent.parent / "config.yaml").is_file() and folder.parent.name == "checkpoints":
            return folder.parent.parent, folder
    raise _core.ConfigError(f"{os.fspath(run_dir)}: no run there; expected a run's folder, with config.yaml")


def worker_command(env_id: str) -> list[str]:
    """The command of a worker that has this environment."""
    if _core.is_native_environment(env_id):
        return _core.native_worker_command()
    if ":" not in env_id:
        known = ", ".join(_core.native_environment_ids())
        raise _core.ConfigError(
            f"env.id = {env_id}: no such environment; expected one of {known}, or gymnasium:<id>"
        )
    return [sys.executable, "-m", "gristmill.worker"]


def _train(
    launch: _core.Launch, values: Mapping[str, Any], reporter: Reporter, checkpoint: str
) -> tuple[Result, BaseException | None]:
    from gristmill import _train as train_module

    reporter.started(launch.run_dir, values)
    log = None

    def on_metrics(metrics: Metrics) -> None:
        nonlocal log
        if log is None:
            from gristmill.metrics_log import MetricsLog

            log = MetricsLog(launch.run_dir, values["log.tensorboard"], reporter.message)
        log.write(metrics)
        reporter.metrics(metrics)

    try:
        figures, raised = train_module.train(
            launch, checkpoint, on_metrics, reporter.event, reporter.message, reporter.log
        )
        reporter.closing()
    finally:
        if log is not None:
            log.close()
        reporter.ended()
    from gristmill.result import Result

    return Result.from_core(figures), raised


class _LoggingReporter(Reporter):
    """For Python's users: figures to their callback, everything else to the logger "gristmill"."""

    def __init__(self, on_metrics: Callable[[Metrics], None] | None) -> None:
        import logging

        self._on_metrics = on_metrics
        self._logger = logging.getLogger("gristmill")

    def started(self, run_dir: str, values: Mapping[str, Any]) -> None:
        self._logger.info("run in %s", run_dir)

    def metrics(self, metrics: Metrics) -> None:
        if self._on_metrics is not None:
            self._on_metrics(metrics)

    def event(self, event: Any) -> None:
        report = self._logger.info if event.kind == "started" else self._logger.warning
        report("%s", event.message)

    def message(self, text: str) -> None:
        self._logger.info("%s", text)

    def log(self, level: int, text: str) -> None:
        self._logger.log(level, "%s", text)
