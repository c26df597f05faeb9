"""What the supervisor and the learner say of workers that hang, die for ever, or push nothing."""

import os
import threading
import time

import pytest
from running import segments_of

import gristmill as gm


def lines_about(caplog, words):
    return [message for message in caplog.messages if words in message]


def test_an_environment_that_sleeps_for_ever_is_named_with_its_line_restarted_and_the_run_goes_on(
    faulty, caplog
):
    result = faulty("hang", **{"workers.hang_timeout_s": 2})
    assert result.end == "frames"
    assert result.restarts == 1
    told = lines_about(caplog, "has given no sign of life for")[-1]
    (killed,) = lines_about(caplog, "; killing it")
    for message in (told, killed):
        assert message.startswith("worker 0 (pid ")
        assert ", in tick at " in message
        assert "Its stack, innermost first:\n    tick at " in message
        assert "/fault_environments.py:" in message
        assert "/gristmill/worker.py:" in message
    line = int(told.partition("/fault_environments.py:")[2].split(";")[0])
    with open(told.partition(", in tick at ")[2].partition(":")[0]) as source:
        assert "time.sleep(60)" in source.readlines()[line - 1]
    assert "workers.hang_timeout_s" in told
    assert "gave no sign of life for 2" in killed


def test_a_hang_in_c_code_is_named_too(faulty, caplog):
    result = faulty("hang_in_c", **{"workers.hang_timeout_s": 2})
    assert result.end == "frames"
    (killed,) = lines_about(caplog, "; killing it")
    assert ", in tick at " in killed


def test_the_other_workers_train_on_while_one_hangs(faulty):
    # Long before its time is over, and the run does not wait for it.
    result = faulty("hang", **{"workers.count": 2, "workers.hang_timeout_s": 60})
    assert result.end == "frames"
    assert result.restarts == 0


def test_a_worker_that_dies_again_and_again_ends_the_run_with_an_account_and_a_checkpoint(faulty):
    with pytest.raises(gm.RunFailedError) as caught:
        faulty(
            "exit",
            once=False,
            frames=10**9,
            **{"workers.max_restarts": 2, "workers.restart_backoff_s": 0},
        )
    text, result = str(caught.value), caught.value.result
    assert "worker 0 ended 3 times within 60 s" in text
    assert "workers.max_restarts is 2" in text
    assert text.count("ended with exit status 3") == 3
    assert result.frames > 0
    assert os.path.exists(result.checkpoint)
    assert gm.load_policy(result.run_dir).frames == result.frames


def test_the_learner_says_what_each_worker_does_when_none_pushes(faulty, caplog):
    result = faulty("hang", **{"workers.hang_timeout_s": 4, "workers.stall_warning_s": 1})
    assert result.end == "frames"
    # Also while the workers start; this is of the one that hangs.
    told = [
        message
        for message in lines_about(caplog, "no worker has pushed a trajectory for")
        if ": running, last heartbeat " in message and ", last push " in message
    ]
    assert told
    assert "workers.stall_warning_s is 1 s" in told[0]
    assert "1 of 1 workers are alive" in told[0]
    assert "\n  worker 0 (pid " in told[0]


def test_a_stop_that_somebody_asks_for_on_the_board_ends_the_run(faulty):
    asked = []

    def ask():
        end = time.monotonic() + 60
        while not asked and time.monotonic() < end:
            for name in segments_of(os.getpid()):
                if name.endswith(".board"):
                    board = gm.RunBoard.attach(name)
                    if board.row(0)["counters"]["trajectories"] > 0:
                        board.request_stop()
                        asked.append(name)
            time.sleep(0.01)

    asker = threading.Thread(target=ask)
    asker.start()
    result = faulty("none", frames=10**9)
    asker.join()
    assert asked
    assert result.end == "interrupted"
    assert os.path.exists(result.checkpoint)
