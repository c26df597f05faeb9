"""gristmill.Queue's contract where test_queue.py leaves off: types, bounds, waiting, processes that end."""

import array
import asyncio
import collections
import datetime
import decimal
import enum
import inspect
import math
import mmap
import multiprocessing
import multiprocessing.queues
import os
import pickle
import queue as pyqueue
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from running import await_until

import gristmill as gm

# ---- As multiprocessing.Queue


def test_it_has_every_method_of_multiprocessings():
    theirs = multiprocessing.queues.Queue
    for name in [name for name in vars(theirs) if not name.startswith("_")]:
        assert callable(getattr(gm.Queue, name)), name


def test_defaults_wait_and_arguments_have_multiprocessings_names_and_order():
    q = gm.Queue(1)
    q.put(obj=1, block=True, timeout=None)
    with pytest.raises(pyqueue.Full):
        q.put(2, True, 0)
    assert q.get(block=True, timeout=None) == 1
    waiting = [
        threading.Thread(target=lambda: got.append(q.get())),
        threading.Thread(target=lambda: got.append(q.get_many())),
    ]
    got = []
    for thread in waiting:
        thread.start()
    await_until(lambda: q.statistics()["get_waits"] >= 2, "both wait")
    q.put(2)
    q.put(3)
    for thread in waiting:
        thread.join(30)
    assert sorted(got, key=str) in ([2, [3]], [3, [2]])
    assert inspect.signature(gm.Queue.__init__).parameters["maxsize"].default == 0


class Number(enum.IntEnum):
    ONE = 1


class Text(str):
    __slots__ = ("more",)


Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "value",
    [
        Number.ONE,
        Text("sub"),
        Point(1, (2, 3)),
        collections.OrderedDict(b=1, a=2),
        collections.defaultdict(list, a=[1]),
        collections.Counter("hello"),
        collections.deque([1, 2], maxlen=5),
        np.float64(1.5),
        np.int8(-3),
        np.bool_(True),
        np.datetime64("2026-01-01"),
        decimal.Decimal("1.10"),
        datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
        range(3, 30, 3),
        slice(1, None),
        Ellipsis,
        NotImplemented,
        ValueError("message", 7),
        len,
        Point,
        array.array("d", [1, 2]),
        bytearray(b"small"),
        bytearray(b"large" * 20_000),
        memoryview(b"bytes"),
        memoryview(np.arange(30_000).reshape(300, 100)),
        memoryview(np.arange(100, dtype=np.int16))[::3],
        memoryview(np.zeros((2, 0, 3))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_types_survive(value):
    q = gm.Queue()
    q.put(value)
    q.put({"nested": [value]})
    for got in (q.get(), q.get()["nested"][0]):
        assert type(got) is type(value)
        if isinstance(value, memoryview):
            assert got.format == value.format
            assert got.tolist() == value.tolist() or value.nbytes == 0
        elif isinstance(value, Exception):
            assert got.args == value.args
        else:
            assert got == value


def test_what_does_not_pickle_is_a_type_error_and_leaves_the_queue_alone():
    q = gm.Queue()
    for refused in (threading.Lock(), mmap.mmap(-1, 100), (i for i in ()), lambda: None):
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
            q.put(refused)
    assert q.empty()
    assert q.data_size() == 0


# ---- Bounds and time-outs


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


def test_bytes_bound_it_as_messages_do():
    q = gm.Queue(max_size_bytes=64 << 10)
    with pytest.raises(pyqueue.Full) as caught:
        q.put_many([b"x" * 1000] * 100, block=False)
    put = caught.value.put
    assert 60 <= put <= 70
    assert put * 1000 <= q.data_size() <= q.max_size_bytes + 8192
    assert q.full() or q.data_size() + 1008 > q.max_size_bytes
    both = gm.Queue(3, max_size_bytes=64 << 10)
    both.put_many([b"", b"", b""])
    assert both.full()
    assert both.data_size() < 1000


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


def test_get_many_returns_at_once_with_what_is_there():
    q = gm.Queue()
    q.put(1)
    assert q.get_many(timeout=None, max_messages_to_get=100) == [1]
    q.put_many(range(10))
    assert q.get_many(True, None, 4) == [0, 1, 2, 3]
    with q.get_many(True, None, copy=False) as batch:
        assert list(batch) == [4, 5, 6, 7, 8, 9]


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


def test_data_size_counts_messages_and_what_is_not_released():
    q = gm.Queue()
    assert q.data_size() == 0
    q.put(b"x" * 1000)
    one = q.data_size()
    assert 1000 < one < 1040
    q.put(b"x" * 1000)
    assert q.data_size() == 2 * one
    with q.get_many(copy=False):
        assert q.data_size() == 2 * one
        assert q.qsize() == 0
    assert q.data_size() == 0


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


# ---- Threads and processes


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


WAITS = """
import asyncio, sys
import gristmill as gm
q = gm.Queue.attach(sys.argv[1])
calls = {
    "get": q.get,
    "get_many": q.get_many,
    "in_place": lambda: q.get_many(copy=False),
    "put": lambda: q.put(0),
    "put_many": lambda: q.put_many([0] * 10),
    "large": lambda: q.put(bytes(100_000)),
    "aget": lambda: asyncio.run(q.aget()),
}
try:
    calls[sys.argv[2]]()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
CALLS = ["get", "get_many", "in_place", "put", "put_many", "large"]


def waiting_process(q, call):
    """A process that waits in the call, and which of the statistics told so."""
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
    if call in ("put", "put_many", "large"):
        q.put_many([bytes(10_000)] * 4)
    return q


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_ends_every_wait(call):
    q = full_or_empty(call)
    process = waiting_process(q, call)
    try:
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[0] == "interrupted\n"
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("call", [*CALLS, "aget"])
def test_who_ends_or_stops_while_it_waits_disturbs_nobody(call, how):
    q = full_or_empty(call)
    if call == "aget":
        process = subprocess.Popen(
            [sys.executable, "-c", WAITS, q.name, call], stdout=subprocess.PIPE, text=True
        )
        await_until(lambda: q.statistics()["get_waits"] or process.poll() is not None, "it waits")
    else:
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


def test_a_batch_not_released_by_a_dead_process_is_free_again():
    q = gm.Queue(max_size_bytes=256 << 10)
    q.put(np.zeros(200_000, np.uint8))
    reader, writer = os.pipe()

    def hold():
        batch = q.get_many(copy=False)
        os.write(writer, b"x")
        time.sleep(600)
        batch.release()

    child = multiprocessing.get_context("fork").Process(target=hold)
    child.start()
    assert os.read(reader, 1) == b"x"
    with pytest.raises(pyqueue.Full, match=f"process {child.pid} keeps"):
        q.put(np.zeros(200_000, np.uint8), timeout=0.1)
    child.kill()
    child.join(30)
    q.put(np.zeros(200_000, np.uint8), timeout=30)
    os.close(reader)
    os.close(writer)


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


@pytest.mark.parametrize(
    "call",
    [
        lambda q: q.put(1),
        lambda q: q.put_nowait(1),
        lambda q: q.put_many([1]),
        lambda q: q.put_many_nowait([1]),
        lambda q: q.get(),
        lambda q: q.get_nowait(),
        lambda q: q.get_many(),
        lambda q: q.get_many_nowait(),
        lambda q: q.get_many(copy=False),
        lambda q: asyncio.run(q.aget()),
        lambda q: asyncio.run(q.aget_many()),
        lambda q: asyncio.run(q.aput(1)),
        lambda q: asyncio.run(q.aput_many([1])),
    ],
)
def test_after_close_every_method_is_a_value_error(call):
    q = gm.Queue()
    q.put(1)
    q.close()
    with pytest.raises(ValueError, match="closed"):
        call(q)


def test_a_reader_changed_by_another_keeps_its_own():
    q = gm.Queue()
    sent = np.zeros(50_000)
    q.put(sent)
    got = q.get()
    got += 1
    q.put(sent)
    assert not q.get().any()
    assert got.all()
