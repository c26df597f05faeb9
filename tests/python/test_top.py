"""`gristmill top`: running jobs from outside, without disturbing them."""

import json
import os
import signal
import time

import pytest
from rich.console import Console
from running import ENDLESS, run, start, write_config

from gristmill import _core, top


@pytest.fixture
def running(tmp_path):
    """A run that goes on; its process."""
    config = write_config(tmp_path, ENDLESS)
    process = start("train", config, "run.name=watched")
    limit = time.monotonic() + 60
    while not any(found.now.learner.counters["updates"] > 3 for found in top.watched_runs(str(process.pid))):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.05)
    yield process
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)


def test_a_run_is_found_by_name_and_by_pid_and_its_figures_move(running):
    for name in ("watched", "runs/watched/", str(running.pid)):
        assert [found.pid for found in top.watched_runs(name)] == [running.pid]
    assert top.watched_runs("another") == []
    (found,) = top.watched_runs(str(running.pid))
    limit = time.monotonic() + 60
    while not (found.window.frames_per_s > 0 and found.window.acted_per_s > 0):
        assert time.monotonic() < limit
        time.sleep(0.2)
        found.look()
    seen = top.document(found)
    assert seen["run"] == "watched"
    assert [process["name"] for process in seen["processes"]] == ["learner", "worker 0", "worker 1"]
    assert {process["phase"] for process in seen["processes"]} == {"running"}
    assert 0 <= seen["queue_size"] <= seen["queue_capacity"] == 32


def test_once_as_json_is_for_scripts(running):
    done = run("top", "watched", "--once", "--json", "--interval", "0.3")
    assert done.returncode == 0, done.stderr
    (seen,) = json.loads(done.stdout)
    assert seen["pid"] == running.pid
    assert seen["env"] == "cartpole"


def test_the_view_names_every_process_and_its_stages(running):
    (found,) = top.watched_runs(str(running.pid))
    time.sleep(0.3)
    found.look()
    console = Console(width=120, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(top.view([found]))
    text = console.export_text()
    for word in ("watched", "appo on cartpole", "frames/s", "learner", "worker 1", "running", "queue"):
        assert word in text


def test_the_board_is_only_readable_for_who_watches(running):
    """A store into it would end the process: it is a child that tries."""
    (found,) = top.watched_runs(str(running.pid))
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        _core.set_tracing(found.board, True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGSEGV
    assert running.poll() is None


def test_where_no_run_goes_on_it_says_so():
    done = run("top", "no-such-run", "--once", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout) == []
    assert "no run called no-such-run" in done.stderr
