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
def test_a_second_interruption_does_not_cut_the_first_short(endless, number):
    await_figures(endless)
    # The second must not reach the process before it has taken notice of the first: they would be one.
    os.killpg(endless.pid, number)
    while endless.poll() is None:
        time.sleep(0.02)
        os.killpg(endless.pid, number)
    out, err = endless.communicate(timeout=60)
    assert endless.returncode == CODES[number], err
    assert Path(last_json(out)["checkpoint"]).is_dir()
    assert "Traceback" not in err
    assert_nothing_is_left_of(endless.pid)


# Where in a run the moments fall depends on the machine; from launch to learning is well under a second.
@pytest.mark.parametrize("moment", range(10))
def test_an_interruption_at_any_moment_ends_the_run_in_order(tmp_path, moment):
    number = (signal.SIGINT, signal.SIGTERM)[moment % 2]
    process = start("train", write_config(tmp_path, ENDLESS), "--json")
    try:
        time.sleep(random.uniform(0, 1.2))
        workers = workers_of(process.pid)
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=60)
    finally:
        end(process)
    assert_nothing_is_left_of(process.pid, workers)
    if not (tmp_path / "runs").exists():
        # Perhaps before a line of ours had run, when Python itself ends by the signal.
        assert process.returncode in (CODES[number], -number), err
        return
    assert process.returncode == CODES[number], err
    assert "Traceback" not in err
    figures = last_json(out)
    assert figures["end"] == "interrupted"
    if figures.get("frames"):
        assert gm.load_policy(figures["checkpoint"]).frames == figures["frames"]


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
