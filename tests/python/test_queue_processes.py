"""A gm.Queue between processes and threads: how it gets there, and that all arrives once and in order."""

import dataclasses
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import zlib
from contextlib import suppress
from queue import Empty, Full

import numpy as np
import pytest

import gristmill as gm

METHODS = ["fork", "spawn", "forkserver"]


@dataclasses.dataclass
class Step:
    observation: np.ndarray
    reward: float
    info: dict


def _relay(source, target):
    while (message := source.get(timeout=60)) is not None:
        target.put(message)


@pytest.mark.parametrize("method", METHODS)
def test_queues_pass_to_child_processes(method):
    context = multiprocessing.get_context(method)
    there, back = gm.Queue(), gm.Queue(5)
    child = context.Process(target=_relay, args=(there, back))
    child.start()
    messages = [1, "two", np.arange(1000), Step(np.ones(3), 1.0, {})]
    for message in messages:
        there.put(message)
        got = back.get(timeout=60)
        assert type(got) is type(message)
    there.put(None)
    child.join(60)
    assert child.exitcode == 0


ATTACHES = """
import sys
import gristmill as gm
q = gm.Queue.attach(sys.argv[1])
q.put(("attached", q.serializer, q.get()))
"""


def test_an_unrelated_process_attaches_by_name():
    q = gm.Queue()
    q.put("hello")
    done = subprocess.run(
        [sys.executable, "-c", ATTACHES, q.name], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert q.get(timeout=1) == ("attached", "pickle", "hello")
    with pytest.raises(gm.SegmentError):
        gm.Queue.attach(gm.segment_name("queue", "none-pickle"), timeout=0)
    other = gm.TrajectoryQueue.create(gm.segment_name("test", "notaqueue"), {"a": ("int64", ())}, 2)
    with pytest.raises(gm.SegmentError) as caught:
        gm.Queue.attach(other.name)
    assert caught.value.reason == "wrong_kind"
    other.unlink()


def _produce(q, producer, count):
    for i in range(count):
        payload = bytes([producer]) * (i % 700)
        q.put((producer, i, payload, zlib.crc32(payload)), timeout=60)


def _consume(q, results, many):
    seen = []
    while True:
        batch = q.get_many(timeout=60) if many else [q.get(timeout=60)]
        for at, message in enumerate(batch):
            if message is None:
                for extra in batch[at + 1 :]:
                    q.put(extra)
                results.put(seen)
                return
            producer, i, payload, checksum = message
            assert zlib.crc32(payload) == checksum
            seen.append((producer, i))


@pytest.mark.parametrize("many", [False, True])
def test_every_message_arrives_once_and_in_its_producers_order(many):
    producers, consumers, count = 3, 3, 2000
    q, results = gm.Queue(max_size_bytes=1 << 17), gm.Queue()
    context = multiprocessing.get_context("fork")
    makers = [context.Process(target=_produce, args=(q, p, count)) for p in range(producers)]
    takers = [context.Process(target=_consume, args=(q, results, many)) for _ in range(consumers)]
    for process in makers + takers:
        process.start()
    for process in makers:
        process.join(60)
        assert process.exitcode == 0
    for _ in takers:
        q.put(None)
    all_seen = [results.get(timeout=60) for _ in takers]
    for process in takers:
        process.join(60)
        assert process.exitcode == 0
    assert sorted(m for seen in all_seen for m in seen) == [
        (p, i) for p in range(producers) for i in range(count)
    ]
    for seen in all_seen:
        for p in range(producers):
            mine = [i for producer, i in seen if producer == p]
            assert mine == sorted(mine)


def test_many_threads_share_one_queue():
    q = gm.Queue(max_size_bytes=1 << 16)
    got, lock = [], threading.Lock()

    def take():
        while (message := q.get(timeout=60)) is not None:
            with lock:
                got.append(message)

    def put(t):
        for i in range(1000):
            q.put({"thread": t, "i": i, "object": frozenset((t, i))})

    takers = [threading.Thread(target=take) for _ in range(4)]
    makers = [threading.Thread(target=put, args=(t,)) for t in range(4)]
    for thread in takers + makers:
        thread.start()
    for thread in makers:
        thread.join(60)
    q.put_many([None] * 4)
    for thread in takers:
        thread.join(60)
    assert sorted((m["thread"], m["i"]) for m in got) == [(t, i) for t in range(4) for i in range(1000)]


def little(queue, stop):
    while not stop.is_set():
        with suppress(Full):
            queue.put(b"x" * 900, timeout=0.1)


def take_one_by_one(queue, stop, much):
    while not stop.is_set():
        time.sleep(0.0005)  # slower than the producers
        with suppress(Empty):
            if len(queue.get(timeout=0.01)) > 1000:
                much.release()


def test_a_put_of_much_is_not_overtaken_for_ever_by_puts_of_little():
    queue = gm.Queue(max_size_bytes=60_000, serializer="raw")
    context = multiprocessing.get_context("fork")
    stop, much = context.Event(), context.Semaphore(0)
    others = [context.Process(target=little, args=(queue, stop)) for _ in range(3)]
    others.append(context.Process(target=take_one_by_one, args=(queue, stop, much)))
    for process in others:
        process.start()
    try:
        while queue.data_size() < 50_000:
            pass
        for _ in range(3):
            queue.put(bytes(50_000), timeout=60)
            assert much.acquire(timeout=60)
    finally:
        stop.set()
        for process in others:
            process.join(30)
            if process.is_alive():
                process.kill()


@pytest.mark.parametrize("overflow", ["drop_oldest", "latest"])
def test_overflow_is_counted_over_all_processes_and_nobody_waits(overflow):
    q = gm.Queue(5, overflow=overflow)
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=q.put_many, args=(range(p * 1000, p * 1000 + 1000),)) for p in (0, 1)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    left = q.get_many()
    assert len(left) == (5 if overflow == "drop_oldest" else 1)
    statistics = q.statistics()
    assert statistics["puts"] == 2000
    assert statistics["dropped"] == 2000 - len(left)
    assert statistics["put_waits"] == 0
    for p in (0, 1):
        mine = [i for i in left if i // 1000 == p]
        assert mine == sorted(mine)


def test_a_forked_childs_end_leaves_the_queue():
    q = gm.Queue()
    q.put(1)
    child = multiprocessing.get_context("fork").Process(target=lambda: None)
    child.start()
    child.join(30)
    assert q.get(timeout=10) == 1
    assert q.name in [segment.name for segment in gm.list_segments()]


def test_closed_in_one_process_it_goes_on_in_the_others():
    q = gm.Queue()

    def close():
        q.close()
        try:
            q.put(1)
        except ValueError:
            os._exit(7)

    child = multiprocessing.get_context("fork").Process(target=close)
    child.start()
    child.join(30)
    assert child.exitcode == 7
    q.put(2)
    assert q.get(timeout=10) == 2
