"""Waiting for a gm.Queue: for how long, what ends it, and that it costs nothing."""

import math
import queue as pyqueue
import subprocess
import sys
import threading
import time

import pytest
from running import await_until

import gristmill as gm


def test_timeouts_that_make_no_sense_are_refused():
    q = gm.Queue(1)
    q.put(1)
    for wrong in (-1, -0.001, float("nan"), -math.inf):
        with pytest.raises(ValueError, match="timeout"):
            q.put(2, timeout=wrong)
        with pytest.raises(ValueError, match="timeout"):
            q.get(timeout=wrong)
    with pytest.raises(TypeError):
        q.get(timeout="soon")
    with pytest.raises(ValueError, match="max_messages_to_get"):
        q.get_many(max_messages_to_get=0)
    assert q.get(timeout=math.inf) == 1


@pytest.mark.parametrize("wrong", [-1, -0.001, -math.inf, math.nan])
def test_every_method_refuses_a_time_that_makes_no_sense_and_does_nothing(wrong):
    q = gm.Queue()
    q.put(1)
    for call in (
        lambda: q.put(2, timeout=wrong),
        lambda: q.put_many([2, 3], timeout=wrong),
        lambda: q.get(timeout=wrong),
        lambda: q.get_many(timeout=wrong),
        lambda: q.get_many(timeout=wrong, copy=False),
    ):
        with pytest.raises(ValueError, match="timeout"):
            call()
    # Without waiting there is no time to refuse, as with multiprocessing's.
    q.put(2, False, wrong)
    assert q.get_many(False, wrong) == [1, 2]


@pytest.mark.parametrize("timeout", [None, math.inf, 1e300])
def test_without_limit_means_until_something_comes(timeout):
    q = gm.Queue()
    got = []
    waiter = threading.Thread(target=lambda: got.append(q.get(timeout=timeout)))
    waiter.start()
    q.put("came")
    waiter.join(30)
    assert got == ["came"]


def test_infinity_is_for_ever_in_every_method():
    q = gm.Queue()
    q.put(1, timeout=math.inf)
    q.put_many([2, 3], timeout=math.inf)
    assert q.get(timeout=math.inf) == 1
    assert q.get_many(timeout=math.inf) == [2, 3]


def test_a_wait_lasts_as_long_as_it_should():
    q = gm.Queue(1)
    q.put(1)
    empty = gm.Queue()
    for call, error in (
        (lambda: q.put(2, timeout=0.2), pyqueue.Full),
        (lambda: q.put_many([2], timeout=0.2), pyqueue.Full),
        (lambda: empty.get(timeout=0.2), pyqueue.Empty),
        (lambda: empty.get_many(timeout=0.2), pyqueue.Empty),
    ):
        begin = time.monotonic()
        with pytest.raises(error):
            call()
        assert time.monotonic() - begin >= 0.2


def test_what_does_not_fit_now_waits_until_it_does():
    q = gm.Queue(max_size_bytes=64 << 10)
    q.put_many([b"a" * 30_000, b"b" * 30_000])
    putting = threading.Thread(target=q.put, args=(b"c" * 60_000,))
    putting.start()
    await_until(lambda: q.statistics()["put_waits"], "the put waits")
    assert q.get() == b"a" * 30_000
    assert q.get() == b"b" * 30_000
    assert q.get(timeout=30) == b"c" * 60_000
    putting.join(30)


def test_put_many_of_eight_wakes_eight():
    q = gm.Queue()
    got = [[] for _ in range(8)]
    waiting = [threading.Thread(target=lambda mine=mine: mine.append(q.get(timeout=60))) for mine in got]
    for thread in waiting:
        thread.start()
    await_until(lambda: q.statistics()["get_waits"] >= 8, "eight wait")
    q.put_many(range(8))
    for thread in waiting:
        thread.join(30)
    assert sorted(i for mine in got for i in mine) == list(range(8))


def test_close_ends_waiting_in_other_threads():
    q = gm.Queue()
    raised = []

    def wait():
        try:
            q.get()
        except ValueError as error:
            raised.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    while q.statistics()["get_waits"] == 0:
        time.sleep(0.001)
    q.close()
    waiter.join(30)
    assert len(raised) == 1


def test_waiting_costs_no_cpu():
    script = """
import asyncio, threading, time
import gristmill as gm
q, full, asked = gm.Queue(), gm.Queue(1), gm.Queue()
full.put(1)
for wait in (q.get, q.get_many, lambda: full.put(2), lambda: asyncio.run(asked.aget())):
    threading.Thread(target=wait, daemon=True).start()
while q.statistics()["get_waits"] < 2 or not full.statistics()["put_waits"]:
    time.sleep(0.01)
time.sleep(0.5)
before = time.process_time()
time.sleep(2)
print(time.process_time() - before, flush=True)
import os; os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    # Four that wait for two seconds, busily, would take all of them.
    assert float(done.stdout) < 0.5
