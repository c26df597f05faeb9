"""A queue that /dev/shm cannot hold: refused at the start, in figures, with nothing left behind."""

import os
import re
import shutil
import subprocess

import pytest
from running import SMALL, command, run, write_config

import gristmill as gm

NEEDED = re.compile(r"needs (\d+) bytes in /dev/shm, which has (\d+) available")


def assert_refused(result):
    assert result.returncode == 1, result.stderr
    needed, available = map(int, NEEDED.search(result.stderr).groups())
    assert needed > available
    assert "queue capacity" in result.stderr
    assert "Traceback" not in result.stderr
    return needed


def test_a_queue_that_does_not_fit_is_refused_with_bytes_needed_and_available(tmp_path):
    # 10^13 bytes and more.
    config = write_config(tmp_path, {**SMALL, "workers.unroll": 65_536, "queue.capacity": 10_000_000})
    before = gm.shared_memory_available()
    assert assert_refused(run("train", config)) > before


def can_mount():
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    mount = "mount -t tmpfs -o size=64k tmpfs /dev/shm"
    return (
        subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, timeout=60).returncode == 0
    )


@pytest.mark.skipif(not can_mount(), reason="only root may mount a small /dev/shm")
@pytest.mark.parametrize(("size", "needed"), [("1m", 2**19), ("4m", 2**22)])
def test_a_dev_shm_as_small_as_a_containers_is_no_sigbus(tmp_path, size, needed):
    config = write_config(tmp_path, {**SMALL, "queue.capacity": 10_000})
    inside = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && "$@"; code=$?; ls /dev/shm; exit $code'
    result = subprocess.run(
        ["unshare", "-m", "sh", "-c", inside, "sh", *command("train", config)],
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert assert_refused(result) > needed
    assert "gristmill." not in result.stdout
