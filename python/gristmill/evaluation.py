"""Episodes played with a trained policy."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gristmill import _core
from gristmill.environments import ENVPOOL, make_vector
from gristmill.policy import Policy, load_policy
from gristmill.trust import require

# Environments in C++ draw nothing; these are the same ones, step by step, and do.
_DRAWN_AS = {"cartpole": "CartPole-v1"}
_PREFIX = "gymnasium:"
_MOST_AT_ONCE = 64


@dataclass
class Evaluation:
    """Undiscounted returns and lengths of whole episodes."""

    returns: list[float]
    lengths: list[int]
    frames: int  # environment steps that the policy had learned from

    @property
    def mean_return(self) -> float:
        """Over the episodes."""
        return statistics.fmean(self.returns)

    @property
    def deviation(self) -> float:
        """Of the returns; 0 for a single one."""
        return statistics.stdev(self.returns) if len(self.returns) > 1 else 0.0

    @property
    def mean_length(self) -> float:
        """In steps."""
        return statistics.fmean(self.lengths)


def evaluate(
    run_dir: str | os.PathLike[str],
    episodes: int = 10,
    seed: int = 0,
    greedy: bool = True,
    render_mode: str | None = None,
    on_frame: Callable[[Any], None] | None = None,
    trust: bool = False,
) -> Evaluation:
    """Plays `episodes` whole episodes with the policy that load_policy(run_dir) gives.

    render_mode "human" shows one environment in a window; "rgb_array" gives its pictures to on_frame. trust:
    as in resume(). Raises ConfigError when there is no such run, its env.id names code that is not trusted,
    or its environment cannot be drawn.
    """
    if episodes < 1:
        raise ValueError(f"episodes is {episodes}; expected at least 1")
    policy = load_policy(run_dir, seed=seed)
    require(policy.config.env.id, run_dir, trust)
    # One at a time when somebody watches.
    count = 1 if render_mode else min(episodes, _MOST_AT_ONCE)
    environments, render = _make(policy, count, seed, render_mode)
    returns, lengths = _play(policy, environments, _shares(episodes, count), greedy, lambda: render(on_frame))
    return Evaluation(returns, lengths, policy.frames)


def _shares(episodes: int, count: int) -> list[int]:
    """How many episodes each environment plays. Fixed beforehand: taking whatever ends first would favour
    short episodes."""
    return [episodes // count + (i < episodes % count) for i in range(count)]


def _play(
    policy: Policy,
    environments: _core.VectorEnvironment,
    shares: list[int],
    greedy: bool,
    draw: Callable[[], None],
) -> tuple[list[float], list[int]]:
    left = list(shares)
    returns: list[float] = []
    lengths: list[int] = []
    gained = np.zeros(len(left))
    steps = np.zeros(len(left), int)
    observations = environments.reset()
    draw()
    while any(left):
        observations, rewards, terminated, truncated, _ = environments.step(policy.act(observations, greedy))
        draw()
        gained += rewards
        steps += 1
        for i in np.flatnonzero(terminated | truncated):
            if left[i] > 0:
                left[i] -= 1
                returns.append(float(gained[i]))
                lengths.append(int(steps[i]))
            gained[i] = steps[i] = 0
    return returns, lengths


def _make(
    policy: Policy, count: int, seed: int, render_mode: str | None
) -> tuple[_core.VectorEnvironment, Callable[[Callable[[Any], None] | None], None]]:
    env_id: str = policy.config.env.id
    if render_mode is None and _core.is_native_environment(env_id):
        arguments = json.dumps(dict(policy.config.env.kwargs))
        return _core.VectorEnvironment(env_id, count, seed, 0, arguments), lambda _: None
    if render_mode is None and env_id.startswith(ENVPOOL):
        pool = make_vector(env_id, policy.config.env.kwargs, count, seed)
        return _core.VectorEnvironment.wrap(pool), lambda _: None
    if not env_id.startswith(_PREFIX):
        if env_id not in _DRAWN_AS:
            raise _core.ConfigError(f"env.id = {env_id}: this environment cannot be drawn")
        env_id = _PREFIX + _DRAWN_AS[env_id]

    from gristmill.gymnasium_env import GymnasiumVector

    kwargs = dict(policy.config.env.kwargs)
    if render_mode:
        kwargs["render_mode"] = render_mode
    vector = GymnasiumVector(env_id.removeprefix(_PREFIX), kwargs, count, seed)
    environments = _core.VectorEnvironment.wrap(vector)
    if json.loads(environments.spec()) != policy.environment:
        raise _core.ConfigError(
            f"env.id = {env_id}: its spaces are not those that the policy was trained on: "
            f"{environments.spec()}, then {json.dumps(policy.environment)}"
        )

    def render(on_frame: Callable[[Any], None] | None) -> None:
        if render_mode == "rgb_array" and on_frame is not None:
            on_frame(vector.envs[0].render())

    return environments, render
