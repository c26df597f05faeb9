"""Ctrl-C, SIGTERM and readers that go away, at any moment: an orderly end that leaves nothing behind."""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from running import (
    ENDLESS,
    SMALL,
    alive,
    await_figures,
    await_until,
    end,
    last_json,
    segments_of,
    start,
    workers_of,
    write_config,
)

import gristmill as gm

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture
def endless(tmp_path):
    process = start("train", write_config(tmp_path, ENDLESS), "--json")
    yield process
    end(process)


def assert_nothing_is_left_of(pid, workers=()):
    assert not segments_of(pid)
    assert not workers_of(pid)
    assert not [worker for worker in workers if alive(worker)]


@pytest.mark.parametrize("number", CODES)
def test_an_interruption_writes_a_checkpoint_and_leaves_nothing(endless, number):
    await_figures(endless, 2)
    workers = workers_of(endless.pid)
    assert len(workers) == 2
    # Ctrl-C reaches the whole process group.
    os.killpg(endless.pid, number)
    out, err = endless.communicate(timeout=60)
    assert endless.returncode == CODES[number], err
    figures = last_json(out)
    assert figures["end"] == "interrupted"
    assert gm.load_policy(figures["checkpoint"]).frames == figures["frames"] > 0
    assert "gristmill resume" in err
    assert "Traceback" not in err
    assert_nothing_is_left_of(endless.pid, workers)


@pytest.mark.parametrize("number", CODES)
def test_a_second_interruption_waits_for_no_worker_and_still_writes_the_checkpoint(endless, number):
    await_figures(endless)
    # They neither stop nor die by themselves: a second would be waited for them.
    workers = workers_of(endless.pid)
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    os.killpg(endless.pid, number)
    # The second must not reach the process before it has taken notice of the first: they would be one.
    time.sleep(0.05)
    os.killpg(endless.pid, number)
    out, err = endless.communicate(timeout=60)
    assert endless.returncode == CODES[number], err
    assert "not waiting for the workers" in err
    figures = last_json(out)
    assert gm.load_policy(figures["checkpoint"]).frames == figures["frames"]
    assert "Traceback" not in err
    assert_nothing_is_left_of(endless.pid, workers)


@pytest.mark.parametrize("number", CODES)
def test_a_third_interruption_ends_at_once_and_leaves_nothing(tmp_path, number):
    process = start("train", write_config(tmp_path, ENDLESS), "--json")
    try:
        await_figures(process)
        workers = workers_of(process.pid)
        for _ in range(3):
            os.killpg(process.pid, number)
            time.sleep(0.01)
        _, err = process.communicate(timeout=60)
    finally:
        end(process)
    assert process.returncode == CODES[number], err
    assert "Traceback" not in err
    assert_nothing_is_left_of(process.pid, workers)
    assert_checkpoints_are_whole(tmp_path)


# Where in a run the moments fall depends on the machine; from launch to learning is well under a second.
# GRISTMILL_INTERRUPTIONS=1000 plays more of them.
@pytest.mark.parametrize("moment", range(int(os.environ.get("GRISTMILL_INTERRUPTIONS", "15"))))
def test_interruptions_at_any_moments_end_the_run_and_leave_nothing(tmp_path, moment):
    numbers = [random.choice(list(CODES)) for _ in range(1 + moment % 3)]
    send = random.choice((os.kill, os.killpg))
    process = start("train", write_config(tmp_path, ENDLESS), "--json")
    workers = set()
    try:
        for i, number in enumerate(numbers):
            time.sleep(random.uniform(0, 0.2) if i else random.uniform(0, 1.2))
            workers.update(workers_of(process.pid))
            if process.poll() is None:
                send(process.pid, number)
        out, err = process.communicate(timeout=60)
    finally:
        end(process)
    assert_nothing_is_left_of(process.pid, workers)
    assert_checkpoints_are_whole(tmp_path)
    assert "Traceback" not in err
    # Perhaps before a line of ours had run, when Python itself ends by the signal.
    started = (tmp_path / "runs").exists()
    allowed = {CODES[number] for number in numbers} | (set() if started else {-number for number in numbers})
    assert process.returncode in allowed, (numbers, err)
    if len(numbers) == 1 and started:
        figures = last_json(out)
        assert figures["end"] == "interrupted"
        if figures.get("frames"):
            assert gm.load_policy(figures["checkpoint"]).frames == figures["frames"]


def assert_checkpoints_are_whole(folder):
    for checkpoint in folder.glob("runs/*/checkpoints/[0-9]*"):
        assert gm.load_policy(checkpoint).frames > 0


def test_ctrl_c_works_inside_train(tmp_path):
    config = gm.Config(ENDLESS)
    config.run.dir = tmp_path / "runs"

    def interrupt(_metrics):
        os.kill(os.getpid(), signal.SIGINT)

    # What starts the tests in the background tells them to ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            gm.train(config, on_metrics=interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    run_dir = next(Path(config.run.dir).iterdir())
    assert gm.load_policy(run_dir).frames > 0
    assert_nothing_is_left_of(os.getpid())


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_reader_that_goes_away_neither_stops_nor_hangs_the_run(tmp_path, words):
    # As `gristmill train … | head -1` does.
    process = start("train", write_config(tmp_path, SMALL), *words)
    try:
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate(timeout=60)
    finally:
        end(process)
    assert process.returncode in (0, 1)
    assert "Traceback" not in err
    assert "Exception ignored" not in err
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert gm.load_policy(run_dir).frames >= SMALL["train"]["total_frames"]
    assert_nothing_is_left_of(process.pid)


def test_a_run_that_is_stopped_and_continued_goes_on(endless):
    """As Ctrl-Z and fg do."""
    await_figures(endless)
    os.killpg(endless.pid, signal.SIGSTOP)
    await_until(lambda: _state(endless.pid) == "T", "the learner is stopped")
    os.killpg(endless.pid, signal.SIGCONT)
    await_figures(endless, 3)
    os.killpg(endless.pid, signal.SIGINT)
    out, err = endless.communicate(timeout=60)
    assert endless.returncode == 130, err
    assert last_json(out)["restarts"] == 0


def _state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
