"""`gristmill clean`, and the sweep of every start: what dead processes of this user left, nothing else."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest
from running import SMALL, run, segments_of, write_config

import gristmill as gm

LEAVES = """
import os, signal, sys
import gristmill as gm
gm.Queue(max_size_bytes=10_000).close()  # imports, which another user may not be able to
if len(sys.argv) > 2:
    os.setgid(65534)
    os.setuid(65534)
kept = [gm.Queue(max_size_bytes=10_000) for _ in range(int(sys.argv[1]))]
print("\\n".join(q.name for q in kept), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def leave(count, *more):
    """Names of segments whose process has been killed."""
    done = subprocess.run(
        [sys.executable, "-c", LEAVES, str(count), *more], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    names = done.stdout.split()
    assert len(names) == count
    return names


def there(names):
    return [name for name in names if os.path.exists(f"/dev/shm{name}")]


def test_clean_lists_what_it_removes_and_what_is_in_use():
    q = gm.Queue(max_size_bytes=10_000)
    names = leave(3)
    done = run("clean")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for name in names:
        # Unless a run that began meanwhile was quicker.
        assert not there([name])
        assert any(line.startswith(f"removed {name} (") and "is dead" in line for line in lines), done.stdout
    assert any(
        line.startswith(f"in use  {q.name} (") and f"by process {os.getpid()}" in line for line in lines
    )
    q.put(1)
    assert q.get(timeout=5) == 1


def test_the_next_start_removes_a_thousand_that_the_dead_left(tmp_path):
    q = gm.Queue(max_size_bytes=10_000)
    names = [name for _ in range(10) for name in leave(100)]
    done = run("train", write_config(tmp_path, SMALL))
    assert done.returncode == 0, done.stderr
    assert not there(names)
    assert there([q.name])
    assert segments_of(os.getpid()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_users_are_neither_listed_nor_removed():
    try:
        names = leave(2, "as-nobody")
    except AssertionError as error:
        pytest.skip(f"another user cannot run this Python: {error}")
    try:
        done = run("clean")
        assert done.returncode == 0
        for name in names:
            assert name not in done.stdout
        assert there(names) == names
        gm.sweep_segments()
        assert there(names) == names
    finally:
        for name in names:
            with contextlib.suppress(OSError):
                os.unlink(f"/dev/shm{name}")
