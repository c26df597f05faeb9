"""What a run came to."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Result:
    """The figures of one launch of a run. Times count from the start of the process."""

    end: str  # "frames", "solved", "interrupted" or "failed"
    frames: int  # environment steps learned from, earlier launches included
    wall_s: float
    fps: float  # frames of this launch over the time from its first environment step to the last
    launch_to_first_step_s: float | None  # None: no environment was stepped
    mean_return: float  # of the last 100 episodes
    mean_length: float
    episodes: int
    solved: bool  # train.stop_at_return was reached
    solved_at_s: float | None
    policy_lag: dict[str, float]  # {"p50", "max"}, in versions
    dropped_stale: int  # trajectories older than learner.max_policy_lag
    restarts: int  # of workers
    version: int  # of the parameters
    parameter_hash: str
    run_dir: str
    checkpoint: str  # the last one written; empty: none
    error: str = ""

    @classmethod
    def from_core(cls, figures: dict[str, Any]) -> Result:
        """From the dict that the C++ side gives."""
        known = {name: figures[name] for name in cls.__dataclass_fields__ if name in figures}
        if not known["solved"]:
            known["solved_at_s"] = None
        known["launch_to_first_step_s"] = known["launch_to_first_step_s"] or None
        return cls(**known)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class RunFailedError(RuntimeError):
    """A run ended by an error; `result` tells how far it came."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.error)
        self.result = result
