"""Whole runs on environments in Python that go wrong: what is said, and that the run goes on or ends well."""

import subprocess
import sys

import pytest
from running import FAULTY_FRAMES

import gristmill as gm


def about(caplog, words):
    """The one message with these words."""
    (found,) = [message for message in caplog.messages if words in message]
    return found


def test_a_run_learns_from_gymnasium_environments(faulty):
    result = faulty("none", **{"workers.count": 2})
    assert result.end == "frames"
    assert result.frames >= FAULTY_FRAMES
    assert result.restarts == 0
    # Twenty steps of reward 1, in every episode of every environment.
    assert result.mean_return == 20
    assert result.mean_length == 20


def test_an_environment_that_raises_shows_its_traceback_worker_and_seed_and_the_run_goes_on(faulty, caplog):
    result = faulty("raise", at=90_000, frames=110_000, **{"workers.envs_per_worker": 16})
    assert result.end == "frames"
    assert result.restarts == 1
    message = about(caplog, "ZeroDivisionError")
    assert message.startswith("worker ")
    assert "EnvironmentFailedError: environment " in message
    assert "(fault_environments:Fault-v0, seed " in message
    assert "after 5625 steps in all: the wheel came off" in message
    assert "Traceback (most recent call last)" in message
    assert 'raise ZeroDivisionError("the wheel came off")' in message
    assert "EOFError" not in message


@pytest.mark.parametrize(
    ("kind", "words"), [("kill", "SIGKILL"), ("segfault", "SIGSEGV"), ("exit", "exit status 3")]
)
def test_an_environment_that_ends_its_process_is_named_and_the_run_goes_on(faulty, caplog, kind, words):
    result = faulty(kind)
    assert result.end == "frames"
    assert result.restarts == 1
    assert about(caplog, words).startswith("worker ")


def test_an_environment_that_kills_its_process_is_named_within_two_seconds(faulty, caplog, tmp_path):
    faulty("kill")
    (told,) = [record.created for record in caplog.records if "SIGKILL" in record.getMessage()]
    assert told - float((tmp_path / "went_wrong").read_text()) < 2


def test_processes_that_are_killed_again_and_again_cost_no_place_in_the_queue(faulty):
    # Each of them puts 7 x 8 trajectories before its 1000th step: 256 are wanted.
    result = faulty("kill", once=False, frames=4096, **{"workers.restart_backoff_s": 0})
    assert result.end == "frames"
    assert result.restarts == 4


def test_an_environment_that_hangs_is_noticed_and_the_run_goes_on(faulty, caplog):
    result = faulty("hang", **{"workers.hang_timeout_s": 2})
    assert result.end == "frames"
    assert result.restarts >= 1
    assert "restarting" in "".join(caplog.messages)


@pytest.mark.parametrize(
    ("kind", "words"), [("nan_observation", "observation[1] is nan"), ("inf_reward", "reward is inf")]
)
def test_what_is_not_finite_stops_the_run_where_it_came_from(faulty, kind, words):
    with pytest.raises(gm.RunFailedError) as caught:
        faulty(kind)
    text = str(caught.value)
    assert words in text
    assert "worker " in text
    assert "in environment " in text
    assert "of its episode" in text
    assert "fault_environments:Fault-v0" in text


def test_a_fault_that_ends_the_run_leaves_its_good_checkpoint(faulty):
    with pytest.raises(gm.RunFailedError) as caught:
        faulty("nan_observation", at=5_000)
    result = caught.value.result
    assert 0 < result.frames < 5_000
    assert gm.load_policy(result.run_dir).frames == result.frames
    # The file that `once` names is there: this time all goes well.
    assert gm.resume(result.run_dir).end == "frames"


def test_an_observation_of_another_shape_is_named(faulty, caplog):
    assert faulty("shape").restarts == 1
    assert "the observation has shape (4,), its space (3,)" in about(caplog, "EnvironmentFailedError")


def test_an_environment_that_cannot_be_made_ends_the_run_with_what_would_help(faulty):
    with pytest.raises(
        RuntimeError, match=r'Gymnasium knows no "CartPole-v9"; nearest: CartPole-v1'
    ) as caught:
        faulty("none", **{"env.id": "gymnasium:CartPole-v9", "env.kwargs": {}})
    assert "Traceback" not in str(caught.value)
    with pytest.raises(RuntimeError, match=r"its observation space is Tuple.*Supported are Box"):
        faulty("none", **{"env.id": "gymnasium:Blackjack-v1", "env.kwargs": {}})


def test_an_environment_whose_constructor_raises_shows_where(faulty):
    with pytest.raises(RuntimeError, match="could not be made with") as caught:
        faulty("none", **{"env.kwargs": {"kind": "none", "at": "nine"}})
    assert "fault_environments.py" in str(caught.value)
    assert "invalid literal for int()" in str(caught.value)


def test_workers_do_not_import_torchs_python_package():
    code = "import sys, gristmill.worker, gristmill._rollout; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
