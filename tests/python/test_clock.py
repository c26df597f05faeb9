"""The clock on the wall goes backwards, as when it is set: nothing waits longer, nothing ends sooner."""

import os
import shutil
import subprocess
import sys

import pytest
from running import SMALL, command, last_json, write_config

# Every look at the wall clock finds it a minute earlier than the one before. The monotonic clock, which
# time-outs and intervals go by, is left alone.
BACKWARDS = """
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static atomic_long looks;
int clock_gettime(clockid_t which, struct timespec *out) {
  long result = syscall(SYS_clock_gettime, which, out);
  if (which == CLOCK_REALTIME && result == 0) out->tv_sec -= 60 * atomic_fetch_add(&looks, 1);
  return (int)result;
}
time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
int gettimeofday(struct timeval *restrict out, void *restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return 0;
}
"""

WAITS = """
import queue, threading, time
import gristmill as gm
assert time.time() > time.time(), "the clock goes backwards"
q, box = gm.Queue(), gm.Box({"n": 0})
began = time.monotonic()
try:
    q.get(timeout=0.3)
except queue.Empty:
    pass
assert time.monotonic() - began >= 0.3
try:
    box.watch(0, timeout=0.1)
except TimeoutError:
    pass
threading.Timer(0.2, lambda: (q.put("late"), box.update(n=1))).start()
assert q.get(timeout=60) == "late"
"""


@pytest.fixture(scope="module")
def backwards(tmp_path_factory):
    """The environment of a process for which it goes backwards."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    folder = tmp_path_factory.mktemp("backwards")
    (folder / "backwards.c").write_text(BACKWARDS)
    library = folder / "backwards.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, folder / "backwards.c"], check=True)
    return {**os.environ, "LD_PRELOAD": str(library)}


def test_waiting_goes_by_another_clock(backwards):
    done = subprocess.run(
        [sys.executable, "-c", WAITS], env=backwards, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_a_run_logs_saves_and_ends_as_ever(tmp_path, backwards):
    values = {**SMALL, "checkpoint": {"interval_s": 0.1}, "train": {"total_frames": 100_000}}
    done = subprocess.run(
        command("train", write_config(tmp_path, values), "--json"),
        env=backwards,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    result = last_json(done.stdout)
    assert result["end"] == "frames"
    assert result["restarts"] == 0
    assert 0 < result["wall_s"] < 90
