"""gristmill: rollout workers push trajectories through shared memory to a learner.

    import gristmill as gm

    result = gm.train("configs/cartpole.yaml", overrides={"seed": 1})
    policy = gm.load_policy(result.run_dir)

Attributes are loaded when they are first used: importing this package is quick, and neither NumPy nor
torch comes with it.
"""

from __future__ import annotations

from importlib import import_module as _import_module

TYPE_CHECKING = False  # typing's own takes longer to import than everything here
if TYPE_CHECKING:
    from typing import Any

    from gristmill._core import (
        Batch,
        ConfigError,
        QueueClosed,
        RunBoard,
        SegmentError,
        TimerQueue,
        TrajectoryQueue,
        list_segments,
        segment_name,
        shared_memory_available,
        sweep_segments,
    )
    from gristmill._train import CheckpointError
    from gristmill.box import Bounded, Box, BoxClosedError, BoxPin
    from gristmill.config import Config
    from gristmill.evaluation import Evaluation, evaluate
    from gristmill.policy import Policy, load_policy
    from gristmill.queue import MessageBatch, Queue
    from gristmill.result import Result, RunFailedError
    from gristmill.rollout_batch import RolloutBatch
    from gristmill.rollout_worker import Worker
    from gristmill.rollouts import Rollouts, WorkerError
    from gristmill.sweep import SweepTable, sweep
    from gristmill.training import resume, train
    from gristmill.trajectory_spec import TrajectorySpec

_HOMES = {
    "gristmill._core": (
        "Batch",
        "ConfigError",
        "QueueClosed",
        "RunBoard",
        "SegmentError",
        "TimerQueue",
        "TrajectoryQueue",
        "__version__",
        "list_segments",
        "segment_name",
        "shared_memory_available",
        "sweep_segments",
    ),
    "gristmill._train": ("CheckpointError",),
    "gristmill.box": ("Bounded", "Box", "BoxClosedError", "BoxPin"),
    "gristmill.config": ("Config",),
    "gristmill.evaluation": ("Evaluation", "evaluate"),
    "gristmill.policy": ("Policy", "load_policy"),
    "gristmill.queue": ("MessageBatch", "Queue"),
    "gristmill.result": ("Result", "RunFailedError"),
    "gristmill.rollout_batch": ("RolloutBatch",),
    "gristmill.rollout_worker": ("Worker",),
    "gristmill.rollouts": ("Rollouts", "WorkerError"),
    "gristmill.sweep": ("SweepTable", "sweep"),
    "gristmill.training": ("resume", "train"),
    "gristmill.trajectory_spec": ("TrajectorySpec",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Batch",
    "Bounded",
    "Box",
    "BoxClosedError",
    "BoxPin",
    "CheckpointError",
    "Config",
    "ConfigError",
    "Evaluation",
    "MessageBatch",
    "Policy",
    "Queue",
    "QueueClosed",
    "Result",
    "RolloutBatch",
    "Rollouts",
    "RunBoard",
    "RunFailedError",
    "SegmentError",
    "SweepTable",
    "TimerQueue",
    "TrajectoryQueue",
    "TrajectorySpec",
    "Worker",
    "WorkerError",
    "evaluate",
    "list_segments",
    "load_policy",
    "resume",
    "segment_name",
    "shared_memory_available",
    "sweep",
    "sweep_segments",
    "train",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'gristmill' has no attribute {name!r}")
    value = getattr(_import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
