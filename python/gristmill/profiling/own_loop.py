"""What a loop of the user's own (gm.Rollouts) says of itself on its board, and advice in the words of its
arguments instead of a configuration's options."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

OWN_LOOP = "own loop"

# An option, and what gm.Rollouts calls it.
_ARGUMENTS = {
    "workers.count": "workers",
    "workers.envs_per_worker": "envs_per_worker",
    "workers.unroll": "unroll",
    "queue.capacity": "capacity",
    "learner.batch_trajectories": "n of batches(n)",
    "policy.hidden_sizes": "policy",
}


def settings(values: Mapping[str, Any], description: str) -> dict[str, Any]:
    """A run's options; of a loop of the user's own, as its learner's row says, with those that it has."""
    try:
        own = json.loads(description) if description else {}
    except ValueError:
        own = {}  # being written, or damaged
    if not isinstance(own, dict) or own.get("learner") != OWN_LOOP:
        return dict(values)
    told = {"learner.algorithm": OWN_LOOP, "learner.synchronous": bool(own.get("synchronous", False))}
    capacity = own.get("queue_capacity")
    return {**values, **told, "queue.capacity": capacity if isinstance(capacity, int) else 1}


def is_own(config: Mapping[str, Any]) -> bool:
    return config["learner.algorithm"] == OWN_LOOP


def takes_turns(config: Mapping[str, Any]) -> bool:
    return config["learner.algorithm"] == "ppo" or bool(config.get("learner.synchronous", False))


def in_arguments(text: str, change: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A sentence and the changes that it proposes, in gm.Rollouts' words."""
    for option, argument in _ARGUMENTS.items():
        text = text.replace(option, argument)
    return text, {_ARGUMENTS.get(option, option): value for option, value in change.items()}
