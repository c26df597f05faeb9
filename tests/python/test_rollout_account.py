"""Where the time of gm.Rollouts' workers and of the loop over them goes, as top and the profiler see it."""

import json
import os
import threading
import time

import numpy as np
import pytest
import rollout_policies
from rich.console import Console
from running import await_until, run

import gristmill as gm
from gristmill import top
from gristmill.profiling import board as boards
from gristmill.profiling import measure
from gristmill.profiling.board import LEARNER_STAGES, WORKER_STAGES

_SLEEP_S = 0.02


def rollouts(env=rollout_policies.Counter, **options):
    given = {"workers": 1, "envs_per_worker": 4, "unroll": 6, "env_kwargs": {"cut": True}, **options}
    return gm.Rollouts(env, rollout_policies.Constant(), **given)


def this_run():
    (found,) = top.watched_runs(str(os.getpid()))
    return found


def loop(made, batches=10**6, body=lambda: None, over=lambda: False):
    for _ in made.batches(4, count=batches, timeout=60):
        body()
        made.publish()
        if over():
            return


def stages(row, names):
    none = np.zeros(1, np.int64)
    return {
        name: (row.counters[f"{name}_ns"] * 1e-9, int(row.histograms.get(name, none).sum())) for name in names
    }


def test_every_stage_of_a_worker_with_its_own_policy_is_charged_and_they_make_up_its_time():
    with rollouts(capacity=8) as made:
        loop(made, 20, lambda: time.sleep(_SLEEP_S))
        begun = boards.read(this_run().board)
        loop(made, 20, lambda: time.sleep(_SLEEP_S))
        ended = boards.read(this_run().board)
    found = stages(ended.workers[0], WORKER_STAGES)
    assert all(spent > 0 and count > 0 for spent, count in found.values()), found
    # A vector step each; one put for each six.
    steps = ended.workers[0].counters["frames"] // 4
    assert abs(found["environment"][1] - steps) <= 1
    assert found["copy"][1] == ended.workers[0].counters["trajectories"] // 4
    window = boards.between(begun, ended)
    assert window.workers.share("space_wait") > 0.5  # the learner sleeps
    assert 0.8 < window.workers.share(*WORKER_STAGES) < 1.2
    assert window.parameter_latency.sum() > 0
    assert window.bytes_per_s > 0


def test_the_loop_has_a_row_of_its_own_as_the_learner():
    with rollouts() as made:
        assert [row.name for row in boards.read(this_run().board).rows if row.phase != "empty"] == [
            "worker 0"
        ]
        loop(made, 10, lambda: time.sleep(_SLEEP_S))
        now = boards.read(this_run().board)
        found = stages(now.learner, LEARNER_STAGES)
        assert now.learner.phase == "running"
        assert found["learn"][0] >= 10 * _SLEEP_S
        # The last batch's learning, too: the loop went on before it ended.
        assert [found[name][1] for name in ("learn", "publish", "forward")] == [20, 10, 0]
        counters = now.learner.counters
        assert (counters["trajectories"], counters["frames"], counters["updates"]) == (40, 240, 10)
        assert counters["version"] == made.version == 11
        assert int(now.learner.histograms["policy_lag"].sum()) == 40
        assert now.learner.mean_return == 1 + 2 + 3 + 4 + 5  # of an episode of five steps
        before = found["learn"][0]
        time.sleep(0.1)  # between two loops it does nothing that is counted
        loop(made, 1)
        assert stages(boards.read(this_run().board).learner, LEARNER_STAGES)["learn"][0] < before + 0.1


def test_top_shows_the_loop_and_what_it_is():
    with rollouts(capacity=12) as made:
        loop(made, 3)
        seen = top.document(this_run())
        assert (seen["algorithm"], seen["queue_capacity"]) == ("own loop", 12)
        assert [process["name"] for process in seen["processes"]] == ["learner", "worker 0"]
        console = Console(width=120, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
        watched = this_run()
        loop(made, 5, lambda: time.sleep(_SLEEP_S))
        watched.look()
        console.print(top.view([watched]))
        text = console.export_text()
        for word in ("own loop on python:", "learner", "learning", "waiting for space", "of 12"):
            assert word in text, text


def test_a_description_that_is_no_loops_changes_nothing_in_the_settings():
    from gristmill.profiling.own_loop import settings

    values = {"learner.algorithm": "appo", "queue.capacity": 3}
    for text in ("", "{", "[]", '{"learner": "other"}'):
        assert settings(values, text) == values
    damaged = settings(values, '{"learner": "own loop", "queue_capacity": "many"}')
    assert damaged["queue.capacity"] == 1


def profiled(made, body=lambda: None, **options):
    """measure.profile_run() of the loop, which goes on meanwhile."""
    loop(made, 2)
    got = []

    def watch():
        try:
            got.append(measure.profile_run(this_run(), **options))
        except BaseException as error:
            got.append(error)

    thread = threading.Thread(target=watch)
    thread.start()
    loop(made, body=body, over=lambda: not thread.is_alive())
    thread.join()
    if isinstance(got[0], BaseException):
        raise got[0]
    return got[0]


def test_a_loop_that_goes_on_is_profiled_and_traced_with_arrows_from_worker_to_loop():
    with rollouts(capacity=8) as made:
        found = profiled(made, lambda: time.sleep(_SLEEP_S), seconds=1.0, trace_s=0.5)
    assert (found.diagnosis.bound, found.diagnosis.stage) == ("learner", "learn"), found.diagnosis
    assert "the loop is busy" in found.diagnosis.sentence
    assert found.diagnosis.change == {}
    assert found.config["learner.algorithm"] == "own loop"
    assert found.trace.copies_per_trajectory == 1.0
    learner, worker = found.trace.tracks
    assert len(found.trace.flows) >= 5
    for flow in found.trace.flows:
        assert worker.spans[flow.copied][0] <= learner.spans[flow.viewed][0] + learner.spans[flow.viewed][1]
    ring = {boards.WORKER_STAGES[stage] for stage in np.unique(worker.spans[:, 2]).tolist()}
    assert ring >= {"environment", "inference", "assemble", "space_wait", "copy"}


class Slow(rollout_policies.Counter):
    def step(self, action):
        time.sleep(0.002)
        return super().step(action)


def test_slow_environments_are_told_in_the_arguments_of_rollouts():
    with rollouts(Slow) as made:
        found = profiled(made, seconds=1.0)
    assert (found.diagnosis.bound, found.diagnosis.stage) == ("workers", "environment"), found.diagnosis
    assert not any("." in option for option in found.diagnosis.change)
    assert "workers.count" not in found.diagnosis.sentence


def test_the_command_profiles_a_loop_by_its_pid_and_changes_nothing_in_it():
    with rollouts() as made:
        pid = str(os.getpid())
        refused = run("profile", pid, "workers.count=2")
        assert refused.returncode == 2
        assert "is a run that goes on" in refused.stderr
        done = []
        thread = threading.Thread(
            target=lambda: done.append(run("profile", pid, "--seconds", "0.5", "--json"))
        )
        thread.start()
        loop(made, body=lambda: time.sleep(_SLEEP_S), over=lambda: not thread.is_alive())
        thread.join()
    assert done[0].returncode == 0, done[0].stderr
    told = json.loads(done[0].stdout)
    assert told["learner"]["stages"]["learn"]["share"] > 0.3
    assert told["config"]["learner.algorithm"] == "own loop"


def test_a_loop_that_ends_while_it_is_profiled_is_an_error():
    with rollouts() as made:
        loop(made, 2)
        watched = this_run()
    with pytest.raises(measure.ProfileError, match="has ended"):
        measure.profile_run(watched, seconds=0.5)


def test_frames_are_told_at_every_step_not_only_when_trajectories_are_whole():
    with rollouts(Slow, unroll=10_000) as made:

        def wait():
            with pytest.raises(RuntimeError, match="told to stop"):
                loop(made, 1)

        thread = threading.Thread(target=wait)
        thread.start()
        row = this_run()
        await_until(lambda: boards.read(row.board).workers[0].counters["frames"] > 8, "steps")
        assert boards.read(row.board).workers[0].counters["trajectories"] == 0
        made._board.request_stop()
        thread.join(30)
