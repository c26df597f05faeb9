"""Trained policies, for use in Python. They act in C++; torch's Python package is not imported."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from gristmill import _core, _train
from gristmill.config import Config
from gristmill.training import existing_run


class Policy:
    """Acts as the run's policy does. One thread at a time.

    environment: the spaces it was trained on; config: the run's; frames: what it had learned from.
    """

    def __init__(
        self, config: _core.ResolvedConfig, checkpoint: _train.CheckpointState, seed: int = 0
    ) -> None:
        self._core = _train.LoadedPolicy(config, checkpoint, seed)
        self.config = Config.from_resolved(config)
        self.environment: dict[str, Any] = json.loads(self._core.environment)
        self.frames = checkpoint.frames
        self._shape = tuple(self.environment["observation"]["shape"])
        self._dtype = np.dtype(self.environment["observation"]["dtype"])

    def act(self, observation: Any, greedy: bool = True) -> Any:
        """The action for one observation, or the actions [B] or [B, dims] for observations [B, …].

        greedy: the most probable action, or the mean; otherwise sampled.
        """
        observations = np.asarray(observation, self._dtype)
        if observations.shape == self._shape:
            action = self._core.act(observations[None], greedy)[0][0]
            # An int for env.step, like Discrete's own samples.
            return int(action) if action.ndim == 0 else action
        return self._core.act(observations, greedy)[0]

    def value(self, observation: Any) -> Any:
        """The expected discounted return of one observation (a float), or of observations [B, …]."""
        observations = np.asarray(observation, self._dtype)
        if observations.shape == self._shape:
            return float(self._core.act(observations[None], True)[2][0])
        return self._core.act(observations, True)[2]


def load_policy(run_dir: str | os.PathLike[str], seed: int = 0) -> Policy:
    """The policy of a run: run_dir is its folder, for its newest checkpoint, or a checkpoint's.

    Raises ConfigError when there is no such run, CheckpointError when the checkpoint is damaged.
    """
    folder, checkpoint = existing_run(run_dir)
    config = _core.load_config(str(folder / "config.yaml"))
    directory = checkpoint or _train.latest_checkpoint(folder)
    if directory is None:
        raise _core.ConfigError(f"{folder}: the run has no checkpoint")
    return Policy(config, _train.load_checkpoint(directory), seed)
