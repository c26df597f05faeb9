"""Processes of a run killed with SIGKILL: a worker, the learner, the whole run."""

import os
import random
import signal
import time
from pathlib import Path

from running import (
    ENDLESS,
    SMALL,
    alive,
    await_figures,
    await_until,
    end,
    run,
    segments_of,
    start,
    workers_of,
    write_config,
)

import gristmill as gm

CARTPOLE = Path(__file__).parents[2] / "configs" / "cartpole.yaml"


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def test_a_worker_that_is_killed_is_named_and_replaced_and_the_run_ends_solved(tmp_path, caplog):
    caplog.set_level("INFO", logger="gristmill")
    victims = []

    def kill_a_worker(_metrics):
        if not victims:
            victims.extend(workers_of(os.getpid()))
            kill(victims[0])

    # One worker: what comes after its death comes from its successor.
    overrides = {
        "workers.count": 1,
        "log.interval_s": 0.1,
        "train.stop_at_return": 195,
        "train.total_frames": 10**8,
        "run.dir": str(tmp_path / "runs"),
    }
    result = gm.train(CARTPOLE, overrides, on_metrics=kill_a_worker)
    assert result.end == "solved"
    assert result.restarts == 1
    (told,) = [message for message in caplog.messages if "SIGKILL" in message]
    assert told.startswith(f"worker 0 (pid {victims[0]}) was killed by SIGKILL after ")
    assert "restarting in 0.1 s" in told
    assert not segments_of(os.getpid())
    assert not workers_of(os.getpid())


def test_workers_are_gone_within_five_seconds_of_their_learners_death(tmp_path):
    process = start("train", write_config(tmp_path, ENDLESS), "--json")
    try:
        await_figures(process)
        workers = workers_of(process.pid)
        assert len(workers) == 2
        kill(process.pid)
        # From the death, not from the order to die.
        await_until(lambda: not alive(process.pid), "the learner is dead")
        await_until(lambda: not any(map(alive, workers)), "the workers are gone", seconds=5)
        process.communicate(timeout=60)
        left = segments_of(process.pid)
        assert len(left) == 4
    finally:
        end(process)
    again = run("train", write_config(tmp_path, SMALL))
    assert again.returncode == 0, again.stderr
    assert not segments_of(process.pid)


def test_workers_in_python_are_gone_within_five_seconds_of_their_learners_death(tmp_path):
    config = write_config(tmp_path, {**ENDLESS, "env": {"id": "gymnasium:CartPole-v1"}})
    process = start("train", config, "--json")
    try:
        await_figures(process)
        workers = workers_of(process.pid)
        assert len(workers) == 2
        kill(process.pid)
        await_until(lambda: not alive(process.pid), "the learner is dead")
        await_until(lambda: not any(map(alive, workers)), "the workers are gone", seconds=5)
        process.communicate(timeout=60)
    finally:
        end(process)
    gm.sweep_segments()
    assert not segments_of(process.pid)


def test_twenty_runs_killed_at_any_moment_leave_nothing_after_the_next_start(tmp_path):
    config = write_config(tmp_path, ENDLESS)
    killed, workers = [], []
    for _ in range(20):
        process = start("train", config, "--json")
        try:
            time.sleep(random.uniform(0.1, 0.6))
            workers += workers_of(process.pid)
            kill(process.pid)
            process.communicate(timeout=60)
        finally:
            end(process)
        killed.append(process.pid)
    # Those that came so far have removed what the ones before them left.
    assert sum(bool(segments_of(pid)) for pid in killed) < 20
    await_until(lambda: not any(map(alive, workers)), "the workers are gone", seconds=5)
    again = run("train", write_config(tmp_path, SMALL))
    assert again.returncode == 0, again.stderr
    assert not [pid for pid in killed if segments_of(pid)]
    assert not [pid for pid in killed if workers_of(pid)]
    # Half-written files of theirs are no obstacle either.
    for run_dir in (tmp_path / "runs").iterdir():
        for checkpoint in (run_dir / "checkpoints").glob("[0-9]*"):
            assert gm.load_policy(checkpoint).frames > 0
