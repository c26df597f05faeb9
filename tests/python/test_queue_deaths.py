"""Processes that are interrupted, stopped or killed at a gm.Queue disturb nobody and lose nothing."""

import collections
import multiprocessing
import os
import queue as pyqueue
import random
import signal
import subprocess
import sys

import numpy as np
import pytest
from running import await_until

import gristmill as gm

WAITS = """
import asyncio, sys
import gristmill as gm
q = gm.Queue.attach(sys.argv[1])
calls = {
    "get": q.get,
    "get_many": q.get_many,
    "in_place": lambda: q.get_many(copy=False),
    "put": lambda: q.put(0),
    "put_many": lambda: q.put_many(range(10)),
    "large": lambda: q.put(bytes(100_000)),
    "aget": lambda: asyncio.run(q.aget()),
}
try:
    calls[sys.argv[2]]()
except KeyboardInterrupt as error:
    print("interrupted", getattr(error, "put", None), flush=True)
"""
CALLS = ["get", "get_many", "in_place", "put", "put_many", "large"]


def waiting_process(q, call):
    """A process that waits in the call, as the statistics tell."""
    waits = "put_waits" if call in ("put", "put_many", "large") else "get_waits"
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS, q.name, call],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    await_until(lambda: q.statistics()[waits] or process.poll() is not None, "it waits")
    assert process.poll() is None
    return process


def full_or_empty(call):
    q = gm.Queue(4, max_size_bytes=128 << 10)
    if call in ("put", "large"):
        q.put_many([bytes(10_000)] * 4)
    return q


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_ends_every_wait(call):
    q = full_or_empty(call)
    process = waiting_process(q, call)
    try:
        process.send_signal(signal.SIGINT)
        put = 4 if call == "put_many" else None  # how many of its messages went in
        assert process.communicate(timeout=30)[0] == f"interrupted {put}\n"
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("call", [*CALLS, "aget"])
def test_who_ends_or_stops_while_it_waits_disturbs_nobody(call, how):
    q = full_or_empty(call)
    process = waiting_process(q, call)
    try:
        process.send_signal(how)
        if how != signal.SIGSTOP:
            process.wait(30)
        if not q.empty():
            assert len(q.get_many(timeout=10)) == 4
        for i in range(20):
            q.put(i, timeout=10)
            q.put_many([i, i], timeout=10)
            # A stopped one may have been woken for it, and has not taken it.
            assert [q.get(timeout=10), *q.get_many(timeout=10)] == [i, i, i]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("call", ["get", "put_many"])
def test_a_process_killed_while_it_waits_disturbs_nobody(call):
    for _ in range(5):
        q = gm.Queue(4)
        if call == "put_many":
            q.put_many(range(4))
        process = waiting_process(q, call)
        process.kill()
        process.communicate()
        if call == "put_many":
            assert q.get_many(timeout=10) == list(range(4))
        q.put("after", timeout=10)
        assert q.get(timeout=10) == "after"


def test_multiprocessings_terminate_while_waiting_disturbs_nobody():
    # faster_fifo: dead for all.
    for method in ("fork", "spawn"):
        q = gm.Queue()
        children = [multiprocessing.get_context(method).Process(target=q.get) for _ in range(3)]
        for child in children:
            child.start()
        await_until(lambda q=q: q.statistics()["get_waits"] >= 3, "all wait")
        for child in children:
            child.terminate()
            child.join(30)
        q.put("after", timeout=10)
        assert q.get(timeout=10) == "after"


def _send_for_ever(q, acknowledged, producer):
    generator = random.Random(producer)
    i = 0
    while True:
        # Small ones go by copy, large ones by reservation, those in a list by either.
        extra = bytes(generator.choice([0, 10, 3000, 20_000]))
        if i % 3:
            q.put((producer, i, extra))
            i += 1
        else:
            q.put_many([(producer, i, extra), (producer, i + 1, np.zeros(600))])
            i += 2
        os.write(acknowledged, b"%d\n" % i)


def test_producers_killed_at_any_time_lose_and_double_nothing():
    q = gm.Queue(max_size_bytes=256 << 10)
    context = multiprocessing.get_context("fork")
    generator = random.Random(1)
    for round_ in range(12):
        pipes = [os.pipe() for _ in range(2)]
        children = [
            context.Process(target=_send_for_ever, args=(q, pipes[p][1], 2 * round_ + p)) for p in range(2)
        ]
        for child in children:
            child.start()
        seen = collections.defaultdict(list)
        acknowledged = dict.fromkeys(range(2 * round_, 2 * round_ + 2), b"")

        def take(timeout, seen=seen):
            for producer, i, _ in q.get_many(timeout=timeout):
                seen[producer].append(i)

        for _ in range(generator.randrange(1, 30)):
            take(30)
        for child in children:
            child.kill()
            child.join(30)
        try:
            while True:
                take(0.3)
        except pyqueue.Empty:
            pass
        for p in range(2):
            os.close(pipes[p][1])
            with os.fdopen(pipes[p][0], "rb") as reader:
                acknowledged[2 * round_ + p] = reader.read()
        for producer, text in acknowledged.items():
            told = int(text.split()[-1]) if text else 0
            assert seen[producer] == list(range(len(seen[producer])))
            assert told <= len(seen[producer]) <= told + 2
        assert q.data_size() == 0  # nobody's space is lost
    assert set(q.holders()) == set()
