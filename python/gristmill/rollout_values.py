"""What the workers of a gm.Rollouts are given: a configuration, as those of a run are, and the policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gristmill.environments import ENVPOOL, GYMNASIUM, is_native, label_of


def sizes(workers: int, envs_per_worker: int, unroll: int, turns: bool) -> dict[str, Any]:
    """`turns`: workers in C++ take turns with the learner, as in a synchronous run."""
    everyone = workers * envs_per_worker
    values: dict[str, Any] = {
        "workers.count": workers,
        "workers.envs_per_worker": envs_per_worker,
        "workers.unroll": unroll,
        "queue.capacity": max(256, everyone if turns else envs_per_worker),
    }
    if turns:
        values["learner.algorithm"] = "ppo"
        values["learner.batch_trajectories"] = everyone
        values["learner.minibatch_trajectories"] = everyone
    return values


def environment(env: str | Callable[..., Any], kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    if is_native(env):
        return {"env.id": env, **({"env.kwargs": dict(kwargs)} if kwargs else {})}
    if isinstance(env, str) and env.startswith((GYMNASIUM, ENVPOOL)):
        return {"env.id": env}
    # Only messages show it: the environment itself goes by the payload.
    plain = "".join(c if (c.isalnum() and c.isascii()) or c in "_./-" else "-" for c in label_of(env))
    return {"env.id": f"python:{plain}"}


def resolved(policy: Any) -> Any:
    """The policy itself. Raises TypeError for what cannot act."""
    if isinstance(policy, str):
        from gristmill.rollout_process import resolve

        return resolve(policy)
    if not callable(getattr(policy, "act", None)):
        raise TypeError(
            f"policy is {type(policy).__name__}; expected 'mlp', 'module:Name', or an object with "
            f"act(obs, state), such as a torch.nn.Module (see gristmill.acting)"
        )
    return policy


def on_cpu(policy: Any) -> Any:
    """The policy, or a copy of it where its parameters lie on a device."""
    import copy

    import torch

    if isinstance(policy, torch.nn.Module) and any(
        t.device.type != "cpu" for t in policy.state_dict().values()
    ):
        return copy.deepcopy(policy).cpu()
    return policy
