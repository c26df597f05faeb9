"""What a run's speed is bound by, in one sentence: what to change, what it may bring, how sure that is.

Only shares of time are used, so that it can be tested with made-up figures. The chain has two sides that
wait for each other: workers for a place in the queue, the learner for trajectories. Whoever never waits is
what the speed depends on; when both wait, the queue between them is too small to let them work at once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gristmill.profiling.board import Window
from gristmill.profiling.own_loop import in_arguments, is_own, takes_turns

# Below this share of its time, a side's waiting does not matter.
_WAITS = 0.08
# Both sides' waiting, from which on the queue is the reason.
_BOTH_WAIT = 0.15
# Of a process's time ready without a core, from which on shares tell of the machine as well as of the run.
_LOADED = 0.2
# What it says, the settings to try, and how many times the frames/s they may bring.
_Advice = tuple[str, dict[str, Any], float]
_COMPUTE = ("forward", "loss", "backward", "optimiser")


@dataclass
class Diagnosis:
    """bound: learner, parameters, workers, queue, turns, cores, or nothing measured."""

    bound: str
    stage: str  # where most of the bounding side's time goes; empty for queue, turns and cores
    sentence: str
    change: dict[str, Any]  # {option: value} to try; empty where no option mends it
    gain: float  # expected times the frames/s of now, at most
    certainty: str  # sure, likely, unsure
    agreeing: float  # share of the windows that say the same


def diagnose(windows: Sequence[Window], config: Mapping[str, Any], cores: int) -> Diagnosis:
    """windows: consecutive parts of the measured time. config: {dotted key: value}."""
    measured = [w for w in windows if w.batches_per_s > 0 or w.acted_per_s > 0]
    if not measured:
        return Diagnosis(
            "nothing", "", "Nothing was measured: no batch was taken and no step made.", {}, 1, "sure", 1
        )
    whole = _average(measured)
    bound, stage = _bound(whole, config, cores)
    agreeing = Counter(_bound(_shares(w), config, cores)[0] for w in measured)[bound] / len(measured)
    certainty = _certainty(agreeing, len(measured), whole, bound)
    if is_own(config):
        text, change, gain = _OWN_WORDS.get(bound, _WORDS[bound])(whole, stage, config, cores)
        text, change = in_arguments(text, change)
    else:
        text, change, gain = _WORDS[bound](whole, stage, config, cores)
    if whole.delay >= _LOADED:
        certainty = "likely" if certainty == "sure" else certainty
        text += f" The machine was busy: a process was ready without a core {whole.delay:.0%} of its time."
    many = f"{round(agreeing * len(measured))} of {len(measured)} parts of the measurement agree"
    return Diagnosis(bound, stage, f"{text} ({certainty}: {many}.)", change, gain, certainty, agreeing)


@dataclass
class _Shares:
    """Of a window, or of several."""

    space_wait: float
    batch_wait: float
    learner: dict[str, float]
    workers: dict[str, float]
    cores: float  # in use
    worker_cores: float  # … by all workers
    delay: float  # share of the time in which the busiest was ready without a core
    rates: dict[str, float]  # of each stage, a second


def _shares(window: Window) -> _Shares:
    learner = {stage.name: stage.share for stage in window.learner.stages}
    workers = {stage.name: stage.share for stage in window.workers.stages}
    return _Shares(
        workers["space_wait"],
        learner["batch_wait"],
        learner,
        workers,
        window.learner.cpu + window.workers.cpu,
        window.workers.cpu,
        max(window.learner.delay, window.workers.delay),
        {stage.name: stage.rate for stage in (*window.learner.stages, *window.workers.stages)},
    )


def _average(windows: Sequence[Window]) -> _Shares:
    parts = [_shares(w) for w in windows]

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    def means(which: str) -> dict[str, float]:
        return {name: mean([getattr(p, which)[name] for p in parts]) for name in getattr(parts[0], which)}

    return _Shares(
        mean([p.space_wait for p in parts]),
        mean([p.batch_wait for p in parts]),
        means("learner"),
        means("workers"),
        mean([p.cores for p in parts]),
        mean([p.worker_cores for p in parts]),
        mean([p.delay for p in parts]),
        means("rates"),
    )


def _bound(shares: _Shares, config: Mapping[str, Any], cores: int) -> tuple[str, str]:
    if takes_turns(config):
        return "turns", ""
    if min(shares.space_wait, shares.batch_wait) >= _BOTH_WAIT:
        return "queue", ""
    if shares.space_wait >= max(_WAITS, shares.batch_wait):
        busy = {name: share for name, share in shares.learner.items() if name != "batch_wait"}
        stage = max(busy, key=busy.__getitem__)
        # What grows with the parameters alone, however much is learned from.
        if busy["publish"] + busy["optimiser"] > 0.5 * sum(busy.values()):
            return "parameters", "publish" if busy["publish"] > busy["optimiser"] else "optimiser"
        return "learner", stage
    busy = {name: share for name, share in shares.workers.items() if name != "space_wait"}
    if shares.batch_wait >= _WAITS:
        return "workers", max(busy, key=busy.__getitem__)
    return "cores", ""


def _certainty(agreeing: float, windows: int, shares: _Shares, bound: str) -> str:
    # How far the side that waits is ahead of the one that does not.
    margin = {
        "learner": shares.space_wait - shares.batch_wait,
        "parameters": shares.space_wait - shares.batch_wait,
        "workers": shares.batch_wait - shares.space_wait,
        "queue": min(shares.space_wait, shares.batch_wait),
    }.get(bound, 1.0)
    if agreeing >= 0.9 and windows >= 5 and margin >= 0.2:
        return "sure"
    return "likely" if agreeing >= 0.7 and margin >= 0.1 else "unsure"


def _learner(shares: _Shares, stage: str, config: Mapping[str, Any], cores: int) -> _Advice:
    head = (
        f"Learner-bound: workers wait for a place in the queue {shares.space_wait:.0%} of their time, "
        f"while the learner is busy {1 - shares.batch_wait:.0%} of its own, most of it with {_NAMES[stage]} "
        f"({shares.learner[stage]:.0%})."
    )
    most = _limit(1 / max(1 - shares.space_wait, 1e-3), shares, cores)
    if stage not in _COMPUTE:
        gain = min(most, 1 / max(1 - shares.learner[stage], 0.01))
        words, change = {
            "batch_view": (
                "batches are copied where trajectories are too old: a smaller queue.capacity, or a larger "
                "learner.max_policy_lag, avoids it",
                {"learner.max_policy_lag": config["learner.max_policy_lag"] * 4},
            ),
            "log": (
                "it writes log lines and checkpoints: a larger checkpoint.interval_s and log.interval_s help",
                {"checkpoint.interval_s": 60.0, "log.interval_s": 5.0},
            ),
            "learn": (
                "a loop of your own learns: what it does with a batch can be made cheaper",
                {},
            ),
        }[stage]
        return f"{head} There {words}: at most {_times(gain)} the frames/s.", change, gain
    compute = sum(shares.learner[name] for name in _COMPUTE)
    epochs, minibatch = config["learner.epochs"], config["learner.minibatch_trajectories"]
    if epochs > 1:
        fewer = max(1, epochs // 2)
        gain = min(most, 1 / (1 - compute * (1 - fewer / epochs) + 1e-9))
        return (
            f"{head} Try learner.epochs={fewer}: {_upto(gain)} the frames/s; a smaller network "
            f"(policy.hidden_sizes) or a larger learner.minibatch_trajectories save time, too.",
            {"learner.epochs": fewer},
            gain,
        )
    if minibatch < config["learner.batch_trajectories"]:
        larger = config["learner.batch_trajectories"]
        # What a step costs apart from its rows is not known from outside: half of it at best.
        gain = min(most, 1 / (1 - compute / 2))
        return (
            f"{head} Try learner.minibatch_trajectories={larger}, fewer and larger steps: {_upto(gain)} the "
            f"frames/s; a smaller network (policy.hidden_sizes) saves time, too.",
            {"learner.minibatch_trajectories": larger},
            gain,
        )
    sizes = [max(1, size // 2) for size in config["policy.hidden_sizes"]]
    gain = min(most, 1 / (1 - compute / 2))
    spare = " learner.threads=2 may help as well." if cores - shares.cores >= 1 else ""
    return (
        f"{head} Try a smaller network, policy.hidden_sizes={sizes}, or learner.device=cuda: {_upto(gain)} "
        f"the frames/s.{spare}",
        {"policy.hidden_sizes": sizes},
        gain,
    )


def _own_learner(shares: _Shares, stage: str, _config: Mapping[str, Any], cores: int) -> _Advice:
    most = _limit(1 / max(1 - shares.space_wait, 1e-3), shares, cores)
    gain = min(most, 1 / max(1 - shares.learner[stage] / 2, 0.01))
    return (
        f"Learner-bound: workers wait for a place in the queue {shares.space_wait:.0%} of their time, while "
        f"the loop is busy {1 - shares.batch_wait:.0%} of its own, most of it with {_NAMES[stage]} "
        f"({shares.learner[stage]:.0%}). Half of that, by fewer passes over a batch, larger minibatches or a "
        f"smaller network, brings {_upto(gain)} the frames/s.",
        {},
        gain,
    )


def _own_parameters(shares: _Shares, _stage: str, _config: Mapping[str, Any], cores: int) -> _Advice:
    most = _limit(1 / max(1 - shares.space_wait, 1e-3), shares, cores)
    gain = min(most, 1 / max(1 - shares.learner["publish"] / 2, 0.01))
    return (
        f"Bound by the size of the parameters: the loop spends {shares.learner['publish']:.0%} of its time "
        f"publishing them, while workers wait {shares.space_wait:.0%} of theirs. Publish at every other "
        f"batch, or take larger ones: {_upto(gain)} the frames/s.",
        {},
        gain,
    )


def _own_turns(shares: _Shares, _stage: str, _config: Mapping[str, Any], cores: int) -> _Advice:
    waiting = shares.workers["parameters"]
    gain = _limit(1 / max(1 - waiting, 1 - shares.batch_wait, 0.01), shares, cores)
    return (
        f"Loop and workers take turns, as synchronous=True means: workers wait for new parameters "
        f"{waiting:.0%} of their time and the loop for trajectories {shares.batch_wait:.0%} of its own. "
        f"Without it they work at once: {_upto(gain)} the frames/s, from trajectories that are some versions "
        f"old.",
        {"synchronous": False},
        gain,
    )


def _parameters(shares: _Shares, stage: str, config: Mapping[str, Any], cores: int) -> _Advice:
    share = shares.learner["publish"] + shares.learner["optimiser"]
    twice = 2 * config["learner.batch_trajectories"]
    most = _limit(1 / max(1 - shares.space_wait, 1e-3), shares, cores)
    gain = min(most, 1 / (1 - share / 2))
    change: dict[str, Any] = {
        "learner.batch_trajectories": twice,
        "queue.capacity": max(config["queue.capacity"], 2 * twice),
    }
    if stage == "optimiser":
        change = {"learner.minibatch_trajectories": config["learner.batch_trajectories"], "learner.epochs": 1}
    settings = " ".join(f"{key}={value}" for key, value in change.items())
    return (
        f"Bound by the size of the parameters: the learner spends {shares.learner['publish']:.0%} of its "
        f"time publishing them and {shares.learner['optimiser']:.0%} stepping them, which costs the same "
        f"however small the batch is, while workers wait {shares.space_wait:.0%} of theirs. Try "
        f"{settings}, so that each version is made from more frames, or a smaller network "
        f"(policy.hidden_sizes): {_upto(gain)} the frames/s.",
        change,
        gain,
    )


def _workers(shares: _Shares, stage: str, config: Mapping[str, Any], cores: int) -> _Advice:
    count, envs = config["workers.count"], config["workers.envs_per_worker"]
    head = (
        f"Worker-bound: the learner waits for trajectories {shares.batch_wait:.0%} of its time, while "
        f"workers spend {shares.workers[stage]:.0%} of theirs on {_NAMES[stage]}."
    )
    most = 1 / max(1 - shares.batch_wait, 1e-3)
    # Who is ready without a core needs one: others have those that this run does not use.
    spare = cores - shares.cores if shares.delay < _LOADED else 0.0
    each = max(shares.worker_cores / count, 0.05)
    more = max(0, min(int(spare / each), 4 * count))
    if more >= 1:
        gain = min(most, (count + more) / count)
        change = {"workers.count": count + more}
        if config["queue.capacity"] < 2 * (count + more) * envs:
            change["queue.capacity"] = 2 * (count + more) * envs
        settings = " ".join(f"{key}={value}" for key, value in change.items())
        return (
            f"{head} {spare:.1f} of {cores} cores are idle: try {settings}: {_upto(gain)} the frames/s.",
            change,
            gain,
        )
    saved = shares.workers[stage]
    gain = min(most, 1 / (1 - saved / 2))
    if stage == "inference":
        change = {
            "workers.envs_per_worker": 2 * envs,
            "queue.capacity": max(config["queue.capacity"], 4 * envs * count),
        }
        settings = " ".join(f"{key}={value}" for key, value in change.items())
        return (
            f"{head} All {cores} cores are busy: larger vectors make each action cheaper, try {settings}, "
            f"or a smaller network (policy.hidden_sizes): {_upto(gain)} the frames/s.",
            change,
            gain,
        )
    advice = {
        "environment": f"an environment of half the cost brings {_upto(gain)} the frames/s, and more cores "
        "more workers",
        "copy": "trajectories are large: smaller observations (uint8, fewer pixels), or more memory "
        "bandwidth",
        "parameters": "a larger learner.batch_trajectories makes fewer versions",
    }.get(stage, "a larger workers.unroll spreads it over more steps")
    return f"{head} All {cores} cores are busy: {advice}.", {}, gain


def _queue(shares: _Shares, _stage: str, config: Mapping[str, Any], cores: int) -> _Advice:
    capacity = config["queue.capacity"]
    wanted = 4 * max(
        config["learner.batch_trajectories"], config["workers.count"] * config["workers.envs_per_worker"]
    )
    wanted = max(wanted, 2 * capacity)
    gain = _limit(1 / max(1 - shares.space_wait, 1 - shares.batch_wait), shares, cores)
    return (
        f"The queue is too small: workers wait for a place {shares.space_wait:.0%} of their time and the "
        f"learner for trajectories {shares.batch_wait:.0%} of its own; they take turns instead of working "
        f"at once. Try queue.capacity={wanted} (it is {capacity}): {_upto(gain)} the frames/s, at the "
        f"price of policy lag.",
        {"queue.capacity": wanted},
        gain,
    )


def _turns(shares: _Shares, _stage: str, config: Mapping[str, Any], cores: int) -> _Advice:
    waiting = shares.workers["parameters"]
    gain = _limit(1 / max(1 - waiting, 1 - shares.batch_wait, 0.01), shares, cores)
    return (
        f"Learner and workers take turns, as learner.algorithm=ppo means: workers wait for new parameters "
        f"{waiting:.0%} of their time and the learner for trajectories {shares.batch_wait:.0%} of its own. "
        f"learner.algorithm=appo lets them work at once: {_upto(gain)} the frames/s, but runs are no longer "
        f"reproducible.",
        {"learner.algorithm": "appo"},
        gain,
    )


def _cores(shares: _Shares, _stage: str, config: Mapping[str, Any], cores: int) -> _Advice:
    learner = max((n for n in shares.learner if n != "batch_wait"), key=shares.learner.__getitem__)
    worker = max((n for n in shares.workers if n != "space_wait"), key=shares.workers.__getitem__)
    busy = f"{shares.cores:.1f} of {cores} cores are in use"
    text = (
        f"Balanced: neither workers ({shares.space_wait:.0%}) nor learner ({shares.batch_wait:.0%}) wait "
        f"much, and {busy}. Most of the workers' time is {_NAMES[worker]} ({shares.workers[worker]:.0%}), "
        f"most of the learner's {_NAMES[learner]} ({shares.learner[learner]:.0%}); only both made cheaper, "
        f"or more cores, bring more."
    )
    return text, {}, 1.0


_WORDS = {
    "learner": _learner,
    "parameters": _parameters,
    "workers": _workers,
    "queue": _queue,
    "turns": _turns,
    "cores": _cores,
}
# Where a loop of the user's own has other means.
_OWN_WORDS = {"learner": _own_learner, "parameters": _own_parameters, "turns": _own_turns}
_NAMES = {
    "environment": "the environments",
    "inference": "inference",
    "assemble": "assembling trajectories",
    "copy": "copying into the queue",
    "parameters": "waiting for parameters",
    "batch_view": "looking at batches",
    "forward": "the forward pass",
    "loss": "advantages and loss",
    "backward": "the backward pass",
    "optimiser": "the optimiser",
    "publish": "publishing parameters",
    "log": "logs and checkpoints",
    "learn": "learning",
}


def _limit(gain: float, shares: _Shares, cores: int) -> float:
    """No more than the cores allow, if it is computing that all of it does."""
    return max(1.0, min(gain, cores / max(shares.cores, 1e-3)))


def _times(gain: float) -> str:
    return f"{gain:.1f} ×" if math.isfinite(gain) else "many times"


def _upto(gain: float) -> str:
    return f"up to {_times(gain)}"
