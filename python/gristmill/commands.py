"""`train` and `resume`: a run, shown while it goes on, and its result."""

from __future__ import annotations

import sys

from gristmill import _core, training
from gristmill.console import (
    BAD_INPUT,
    FAILED,
    INTERRUPTED,
    OK,
    TERMINATED,
    TerminatedError,
    failed,
    interruptible,
)
from gristmill.progress import Progress, progress_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gristmill.result import Result

    Run = Callable[[Progress], tuple[Result, BaseException | None]]


def train(config: str, overrides: list[str], as_json: bool = False) -> int:
    """A new run. Returns the exit code."""
    return _show(lambda progress: training.run(_core.load_config(config, overrides), progress), as_json)


def resume(run_dir: str, overrides: list[str], as_json: bool = False, trusted: bool = False) -> int:
    """Goes on with a run. Returns the exit code."""
    return _show(lambda progress: training.run_again(run_dir, overrides, progress, trusted), as_json)


def _show(run: Run, as_json: bool) -> int:
    """With as_json, stdout's last line is one JSON object whatever happens, and people read stderr."""
    progress = progress_for(sys.stderr if as_json else sys.stdout)
    try:
        result, raised = run(progress)
    except _core.ConfigError as error:
        if as_json:
            _print_json({"error": str(error)})
        return failed(str(error), BAD_INPUT)
    except KeyboardInterrupt:
        if as_json:
            _print_json({"end": "interrupted", "error": "interrupted before the run had a result"})
        raise
    except (OSError, RuntimeError) as error:
        if as_json:
            _print_json({"error": str(error)})
        return failed(str(error), FAILED)
    interruptible.hold()
    if raised is not None and not isinstance(raised, KeyboardInterrupt):
        raise raised
    _tell(result, progress)
    if as_json:
        _print_json(result.to_dict())
    if isinstance(raised, TerminatedError):
        return TERMINATED
    if raised is not None:
        return INTERRUPTED
    return FAILED if result.end == "failed" else OK


def _print_json(figures: dict) -> None:
    import json

    print(json.dumps(figures))


def _tell(result: Result, progress: Progress) -> None:
    if result.end == "failed":
        failed(result.error, FAILED)
    figures = f"{result.frames:,} frames at {result.fps:,.0f} frames/s, mean return {result.mean_return:.1f}"
    style = "32" if result.solved else ""
    if result.solved:
        line = f"solved after {result.solved_at_s:.2f} s: {figures}"
    elif result.end == "interrupted":
        line = f"interrupted: {figures}"
    else:
        line = f"{result.end if result.end == 'failed' else 'ended'} after {result.wall_s:.1f} s: {figures}"
    progress.say(line, style)
    if result.checkpoint:
        progress.say(f"checkpoint: {result.checkpoint}")
    if result.end in ("interrupted", "failed") and result.checkpoint:
        progress.say(f"go on with: gristmill resume {result.run_dir}")
