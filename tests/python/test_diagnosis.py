"""The bottleneck sentence, from made-up shares."""

import dataclasses

import numpy as np
import pytest

from gristmill import _core
from gristmill.profiling.board import LEARNER_STAGES, WORKER_STAGES, Process, Stage, Window
from gristmill.profiling.diagnosis import diagnose

CONFIG = _core.default_values()


def window(workers, learner, cores=1.8, seconds=0.5):
    def process(name, names, shares):
        stages = [
            Stage(n, shares.get(n, 0.0) * seconds, shares.get(n, 0.0), 10, 20.0, 1e-3, 2e-3) for n in names
        ]
        return Process(name, seconds, stages, cores / 2, 0.0)

    none = np.zeros(len(_core.histogram_bounds()), np.int64)
    return Window(
        seconds,
        process("learner", LEARNER_STAGES, learner),
        process("workers", WORKER_STAGES, workers),
        *(1000.0, 1000.0, 10.0, 1e6, 0.0, 5.0, 10.0),
        *(none, none, none, 0),
    )


def told(workers, learner, changes=None, cores=1.8, windows=10, of_cores=2):
    return diagnose([window(workers, learner, cores)] * windows, CONFIG | (changes or {}), of_cores)


def test_workers_that_wait_for_space_mean_a_slow_learner():
    found = told(
        {"space_wait": 0.71, "environment": 0.2, "inference": 0.09},
        {"backward": 0.6, "forward": 0.3, "batch_wait": 0.01},
        {"learner.epochs": 4},
    )
    assert (found.bound, found.stage, found.certainty) == ("learner", "backward", "sure")
    assert "wait for a place in the queue 71% of their time" in found.sentence
    assert found.change == {"learner.epochs": 2}
    assert 1.5 < found.gain <= 2 / 1.8 * 1.0001 or found.gain == pytest.approx(2 / 1.8)


def test_a_learner_that_waits_means_slow_workers_and_names_their_stage():
    found = told({"environment": 0.9, "inference": 0.1}, {"batch_wait": 0.85, "backward": 0.1}, cores=1.95)
    assert (found.bound, found.stage) == ("workers", "environment")
    assert "All 2 cores are busy" in found.sentence
    assert found.change == {}


def test_idle_cores_are_a_reason_for_more_workers():
    found = told({"environment": 0.95}, {"batch_wait": 0.9}, cores=2.0, of_cores=16)
    assert found.change["workers.count"] > CONFIG["workers.count"]
    assert found.gain > 2


def test_cores_that_others_use_are_not_idle():
    made = window({"environment": 0.95}, {"batch_wait": 0.9}, 0.3)
    made.workers.delay = 0.7
    found = diagnose([made] * 10, CONFIG, 2)
    assert "workers.count" not in found.change
    assert found.certainty == "likely"
    assert "ready without a core 70% of its time" in found.sentence


def test_both_sides_waiting_means_that_the_queue_is_too_small():
    found = told(
        {"space_wait": 0.4, "environment": 0.6},
        {"batch_wait": 0.45, "backward": 0.5},
        {"queue.capacity": 64},
        1.0,
    )
    assert found.bound == "queue"
    assert found.change["queue.capacity"] >= 256
    assert found.gain == pytest.approx(1 / 0.6)


def test_publishing_more_than_learning_means_too_many_parameters():
    found = told({"space_wait": 0.8, "environment": 0.2}, {"publish": 0.7, "forward": 0.2}, cores=1.2)
    assert (found.bound, found.stage) == ("parameters", "publish")
    assert "70% of its time publishing" in found.sentence
    assert found.change["learner.batch_trajectories"] > CONFIG["learner.batch_trajectories"]


def test_synchronous_runs_wait_on_purpose():
    found = told(
        {"parameters": 0.5, "environment": 0.4},
        {"batch_wait": 0.5, "backward": 0.4},
        {"learner.algorithm": "ppo"},
    )
    assert found.bound == "turns"
    assert found.change == {"learner.algorithm": "appo"}


def test_where_nobody_waits_nothing_is_promised():
    found = told(
        {"environment": 0.6, "inference": 0.4}, {"forward": 0.5, "backward": 0.48, "batch_wait": 0.02}
    )
    assert (found.bound, found.gain, found.change) == ("cores", 1.0, {})


def test_parts_that_disagree_make_it_unsure():
    slow_learner = window({"space_wait": 0.3, "environment": 0.7}, {"backward": 0.98, "batch_wait": 0.02})
    slow_workers = window({"environment": 1.0}, {"backward": 0.9, "batch_wait": 0.1})
    found = diagnose([slow_learner, slow_workers] * 5, CONFIG, 2)
    assert found.certainty == "unsure"
    assert "5 of 10 parts" in found.sentence


def test_a_measurement_without_anything_says_so():
    empty = dataclasses.replace(window({}, {}), batches_per_s=0.0, acted_per_s=0.0)
    assert diagnose([empty], CONFIG, 2).bound == "nothing"


@pytest.mark.parametrize("bound", ["learner", "workers"])
@pytest.mark.parametrize("stage", [*WORKER_STAGES, *LEARNER_STAGES])
def test_every_stage_can_be_the_bottleneck_and_its_changes_are_valid_options(bound, stage):
    if stage in ("space_wait", "batch_wait") or (stage in WORKER_STAGES) != (bound == "workers"):
        return
    if bound == "workers":
        found = told({stage: 0.9}, {"batch_wait": 0.8, "forward": 0.1})
    else:
        found = told({"space_wait": 0.8}, {stage: 0.9})
    assert found.stage == stage
    assert found.gain >= 1
    for key, value in found.change.items():
        _core.check_override(f"{key}={value}")
