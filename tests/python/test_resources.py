"""What runs out: shared memory, disk, file descriptors. Each is a typed error that tells what was needed and
what there was, at the start where it can be known there; nothing hangs, nothing dies of a signal, and the
last good checkpoint stays."""

import contextlib
import json
import os
import queue as pyqueue
import signal
import subprocess
import sys
import threading

import pytest
from namespaces import python, run_in, tiny
from running import ENDLESS, SMALL, command, last_json, run, segments_of, write_config

import gristmill as gm

OWN_MOUNTS = ["-m", "--propagation", "private"] if os.geteuid() == 0 else ["-rm"]

FILL = """
import gristmill as gm, numpy as np, os
for make in (lambda: gm.Queue(max_size_bytes=8 << 20), lambda: gm.Box({"a": np.zeros(1 << 20)})):
    try:
        make()
    except gm.SegmentError as error:
        print(error.reason, error)
    else:
        print("made")
fits = gm.Queue(max_size_bytes=100_000)
fits.put(b"x" * 90_000)
assert fits.get(timeout=5) == b"x" * 90_000
# Until it is full, and again when there is room.
kept = []
while True:
    try:
        kept.append(gm.Queue(max_size_bytes=100_000))
    except gm.SegmentError as error:
        print(error.reason, error)
        break
kept.pop().close()
del kept[:]
gm.Queue(max_size_bytes=100_000).put(1)
print(len(os.listdir("/dev/shm")), "left")
"""


def test_a_tiny_shared_memory_is_an_error_at_creation_with_bytes_needed_and_available():
    done = run_in(OWN_MOUNTS, tiny("/dev/shm", "1m"), python(FILL))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4, lines
    for line in lines[:3]:
        assert line.startswith("no_space")
        assert "available" in line
    assert "which has 1048576 available" in lines[0]


def test_a_run_that_does_not_fit_into_shared_memory_says_so_before_it_learns(tmp_path):
    values = {**SMALL, "queue": {"capacity": 10_000}}
    done = run_in(
        OWN_MOUNTS, tiny("/dev/shm", "2m"), command("train", write_config(tmp_path, values), "--json")
    )
    assert done.returncode == 1, done.stderr
    error = last_json(done.stdout)["error"]
    assert "bytes in /dev/shm, which has" in error
    assert "queue" in error
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "runs").iterdir()), "a run that never began leaves no folder"


def test_a_disk_that_fills_up_ends_a_run_with_the_reason_and_the_last_good_checkpoint(tmp_path):
    values = {
        **ENDLESS,
        "checkpoint": {"interval_s": 0.2, "keep": 1000},
        "policy": {"hidden_sizes": [64, 64]},
    }
    config = write_config(tmp_path, values)
    disk = tmp_path / "disk"
    disk.mkdir()
    # What is in a namespace's mount is gone with it: it is looked at inside.
    code = f"""
import json, pathlib, subprocess, sys, time, signal
run = subprocess.Popen({command("train", config, "--json", f"run.dir={disk}", "run.name=full")!r},
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
for line in run.stderr:
    if "no checkpoint was written" in line:
        break
run.send_signal(signal.SIGINT)
out, err = run.communicate(timeout=60)
import gristmill as gm
folders = sorted(pathlib.Path({str(disk)!r}).glob("full/checkpoints/[0-9]*"))
frames = [gm.load_policy(folder).frames for folder in folders]
result = json.loads(out.splitlines()[-1])
print(json.dumps({{"line": line, "err": err, "result": result, "frames": frames}}))
"""
    done = run_in(OWN_MOUNTS, tiny(disk, "300k"), python(code))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert "No space left on device" in told["line"]
    assert "the earlier ones are as they were" in told["line"]
    # The one at the end did not fit either: that is an error, not a silence.
    assert told["result"]["end"] == "failed"
    assert "No space left on device" in told["result"]["error"]
    assert told["frames"], "there was a checkpoint before the disk was full"
    assert "Traceback" not in told["err"]


LIMITED = """
import resource, sys
import gristmill as gm
q = gm.Queue(max_size_bytes=100_000)
name = q.name
from gristmill import _core
resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for attempt in (lambda: gm.Queue(max_size_bytes=100_000), lambda: gm.Queue.attach(name, timeout=1)):
    try:
        attempt()
    except (gm.SegmentError, OSError) as error:
        print(type(error).__name__, error)
q.put(5)
print(q.get(timeout=5))
"""


def test_without_descriptors_left_a_queue_is_refused_and_those_there_are_go_on():
    done = subprocess.run(python(LIMITED), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    created, attached, got = done.stdout.splitlines()
    assert "Too many open files" in created or "too many open files" in created
    assert "Too many open files" in attached or "too many open files" in attached
    assert got == "5"


@pytest.mark.parametrize("limit", [12, 20, 30])
def test_a_run_without_enough_descriptors_ends_with_an_error_and_leaves_nothing(tmp_path, limit):
    values = {**SMALL, "workers": {**SMALL["workers"], "count": 16}}
    config = write_config(tmp_path, values)
    process = subprocess.Popen(
        ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *command("train", config, "--json")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = process.communicate(timeout=100)
    # Python itself may need more than the fewest of these.
    assert process.returncode in (0, 1), err
    if process.returncode == 1 and out:
        assert "open files" in last_json(out)["error"].lower(), out
    assert not segments_of(process.pid)


def test_a_fork_after_threads_have_started_uses_queues_and_boxes_on_both_sides():
    q, back = gm.Queue(1 << 20), gm.Queue(1 << 20)
    box = gm.Box({"n": 0})
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            q.put("tick")
            with contextlib.suppress(pyqueue.Empty):
                q.get_many(timeout=0)
            box.n += 1

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    signal.alarm(20)
                    q.put("from the child", timeout=10)
                    q.get(timeout=10)
                    box.n += 1
                    back.put(box.n, timeout=10)
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert back.get(timeout=10) > 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    q.put("still there")
    assert "still there" in q.get_many(timeout=5)


ATTACHED = """
import sys
import gristmill as gm
q, box = gm.Queue.attach(sys.argv[1]), gm.Box.attach(sys.argv[2])
q.put("hello")
box.n = 7
if sys.argv[3] == "kill":
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_an_attached_process_that_ends_removes_the_segment_for_nobody(how):
    q, box = gm.Queue(1 << 20), gm.Box({"n": 0})
    for round_ in range(2):
        subprocess.run([sys.executable, "-c", ATTACHED, q.name, box.name, how], timeout=60)
        assert q.get(timeout=5) == "hello", round_
        assert box.n == 7
        box.n = 0


def test_of_multiprocessing_children_none_removes_a_segment():
    import multiprocessing

    context = multiprocessing.get_context("spawn")  # whose resource tracker unlinks what it has seen
    q = gm.Queue(1 << 20)
    for number in range(2):
        process = context.Process(target=q.put, args=(number,))
        process.start()
        process.join(60)
        assert process.exitcode == 0
        assert q.get(timeout=5) == number
    assert gm.Queue.attach(q.name, timeout=5).name == q.name


def test_clean_leaves_what_it_cannot_judge(tmp_path):
    """Segments of a process in another pid namespace are neither listed as dead nor removed."""
    code = """
import subprocess, sys
import gristmill as gm
q = gm.Queue(max_size_bytes=100_000)
print(q.name, flush=True)
sys.stdin.read()
"""
    options = ["-pf", "--mount-proc"] if os.geteuid() == 0 else ["-rpf", "--mount-proc"]
    run_in(options, "true", ["true"])
    process = subprocess.Popen(
        ["unshare", *options, *python(code)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        name = process.stdout.readline().strip()
        assert name
        with pytest.raises(gm.SegmentError, match="namespace"):
            gm.Queue.attach(name, timeout=1)
        cleaned = run("clean")
        assert cleaned.returncode == 0
        assert f"removed {name}" not in cleaned.stdout
        assert os.path.exists(f"/dev/shm{name}")
    finally:
        process.communicate("", timeout=60)
    assert not os.path.exists(f"/dev/shm{name}")
