"""gristmill.Queue: what it shares with multiprocessing.Queue, and what it adds."""

import dataclasses
import gc
import math
import multiprocessing
import os
import pickle
import queue as pyqueue
import signal
import subprocess
import sys
import threading
import time
import zlib

import numpy as np
import pytest

import gristmill as gm

METHODS = ["fork", "spawn", "forkserver"]


@dataclasses.dataclass
class Step:
    observation: np.ndarray
    reward: float
    info: dict


class Unpicklable:
    def __reduce__(self):
        raise AttributeError("not this one")


class Unloadable:
    def __reduce__(self):
        return _refuse, ()


def _refuse():
    raise LookupError("cannot be loaded")


def test_objects_come_out_in_order_and_equal():
    q = gm.Queue()
    values = [1, "two", (3.0,), None, {"four": [5, 6]}, {7, 8}, b"9", 2**80, -(2**63), "\ud800", "é" * 300]
    for value in values:
        q.put(value)
    assert q.qsize() == len(values)
    assert [q.get() for _ in values] == values
    q.put_many(values)
    assert q.get_many() == values
    q.put_many(iter(values))
    assert q.get_many(max_messages_to_get=3) == values[:3]
    assert q.get_many_nowait() == values[3:]
    assert q.empty()


def test_shared_references_and_cycles_survive():
    q = gm.Queue()
    inner, array = [1], np.zeros(3)
    cycle = []
    cycle.append(cycle)
    for message in ([inner, inner], {"a": array, "b": (array,)}, ((inner,), (inner,))):
        q.put(message)
    q.put(cycle)
    got = q.get_many()
    assert got[0][0] is got[0][1]
    assert got[1]["a"] is got[1]["b"][0]
    assert got[2][0][0] is got[2][1][0]
    assert got[3][0] is got[3]


def test_full_and_empty_are_those_of_the_queue_module():
    q = gm.Queue(2)
    q.put(1)
    q.put_nowait(2)
    assert q.full()
    for call in (lambda: q.put(3, False), lambda: q.put_nowait(3), lambda: q.put(3, True, 0.05)):
        with pytest.raises(pyqueue.Full):
            call()
    with pytest.raises(pyqueue.Full, match="2 messages"):
        q.put(3, timeout=0)
    assert [q.get(), q.get_nowait()] == [1, 2]
    for call in (
        lambda: q.get(False),
        q.get_nowait,
        lambda: q.get(True, 0.05),
        lambda: q.get_many(timeout=0.01),
    ):
        with pytest.raises(pyqueue.Empty):
            call()


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


@pytest.mark.parametrize("timeout", [None, math.inf, 1e300])
def test_without_limit_means_until_something_comes(timeout):
    q = gm.Queue()
    got = []
    waiter = threading.Thread(target=lambda: got.append(q.get(timeout=timeout)))
    waiter.start()
    q.put("came")
    waiter.join(30)
    assert got == ["came"]


def test_what_can_never_fit_is_refused_at_once_with_both_sizes():
    q = gm.Queue(max_size_bytes=1 << 16)
    for call in (lambda: q.put(b"x" * 200_000), lambda: q.put_many([b"x" * 200_000])):
        with pytest.raises(ValueError, match=r"2000\d\d bytes .* up to 6\d\d\d\d bytes"):
            call()
    q.put(b"x" * 60_000)
    assert len(q.get()) == 60_000


def test_a_put_many_that_stays_stuck_says_how_many_went_in():
    q = gm.Queue(3)
    with pytest.raises(pyqueue.Full, match="3 of the 5") as caught:
        q.put_many(range(5), timeout=0.05)
    assert caught.value.put == 3
    with pytest.raises(pyqueue.Full) as caught:
        q.put_many_nowait([5])
    assert caught.value.put == 0
    assert q.get_many() == [0, 1, 2]


def test_a_put_many_larger_than_the_queue_goes_through_in_order():
    q = gm.Queue(max_size_bytes=1 << 16)
    messages = [(i, b"x" * 100) for i in range(20_000)]
    producer = threading.Thread(target=q.put_many, args=(messages,))
    producer.start()
    got = []
    while len(got) < len(messages):
        got += q.get_many(timeout=30)
    producer.join(30)
    assert got == messages


def test_what_cannot_be_pickled_is_reported_and_the_others_arrive():
    q = gm.Queue()
    with pytest.raises(AttributeError, match="not this one") as caught:
        q.put_many([1, Unpicklable(), 3])
    assert caught.value.put == 2
    with pytest.raises(AttributeError):
        q.put(Unpicklable())
    assert q.get_many() == [1, 3]


def test_what_cannot_be_loaded_is_reported_and_the_others_arrive():
    q = gm.Queue()
    q.put_many([1, Unloadable(), 3])
    assert q.get_many() == [1, 3]
    with pytest.raises(LookupError, match="cannot be loaded") as caught:
        q.get_many()
    assert b"_refuse" in caught.value.payload
    with pytest.raises(pyqueue.Empty):
        q.get_many_nowait()
    q.put_many([Unloadable(), 5])
    with pytest.raises(LookupError):
        q.get()
    assert q.get() == 5


def test_an_interrupt_while_loading_loses_no_message():
    interrupts = iter([True])

    def loads(data):
        if data == b"2" and next(interrupts, False):
            raise KeyboardInterrupt
        return int(data)

    q = gm.Queue(loads=loads, dumps=lambda number: str(number).encode())
    q.put_many([1, 2, 3])
    with pytest.raises(KeyboardInterrupt):
        q.get_many()
    assert q.qsize() == 3
    assert q.get_many() == [1, 2, 3]


def test_serializers():
    raw = gm.Queue(serializer="raw")
    raw.put_many([b"bytes", bytearray(b"array"), memoryview(b"view"), np.arange(3, dtype=np.uint8)])
    assert raw.get_many() == [b"bytes", b"array", b"view", b"\x00\x01\x02"]
    with pytest.raises(TypeError, match="str"):
        raw.put("text")
    raw.put(b"seen")
    with raw.get_many(copy=False) as batch:
        assert isinstance(batch[0], memoryview)
        assert bytes(batch[0]) == b"seen"
    own = gm.Queue(dumps=lambda text: text.encode(), loads=lambda data: data.decode())
    own.put("text")
    assert own.get() == "text"
    with pytest.raises(TypeError, match="dumps returned is a str"):
        gm.Queue(dumps=str).put(1)
    with pytest.raises(ValueError, match="serializer is 'yaml'"):
        gm.Queue(serializer="yaml")


def test_overflow_drops_and_counts():
    oldest = gm.Queue(3, overflow="drop_oldest")
    oldest.put_many(range(10))
    assert oldest.get_many() == [7, 8, 9]
    assert oldest.statistics()["dropped"] == 7
    latest = gm.Queue(overflow="latest")
    for i in range(5):
        latest.put(i)
    assert latest.get_many() == [4]
    assert latest.statistics()["dropped"] == 4
    with pytest.raises(ValueError, match="overflow is 'wait'"):
        gm.Queue(overflow="wait")


ARRAYS = {
    "contiguous": np.arange(600, dtype=np.float32).reshape(20, 30),
    "fortran": np.asfortranarray(np.arange(600.0).reshape(20, 30)),
    "strided": np.arange(6000.0).reshape(60, 100)[::3, ::-2],
    "empty": np.zeros((3, 0, 2), np.int16),
    "scalar": np.array(7, np.uint8),
    "bool": np.array([True, False]),
    "half": np.ones(1000, np.float16),
    "complex": np.full(5, 1 + 2j),
    "big endian": np.arange(2000, dtype=">i4"),
    "structured": np.zeros(300, dtype=[("a", "i4"), ("b", "f8", (2,))]),
    "objects": np.array([1, "two", None], dtype=object),
    "text": np.array(["a", "bc"]),
    "large": np.arange(300_000, dtype=np.int64),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_every_kind(name):
    array = ARRAYS[name]
    q = gm.Queue()
    for message in (array, {"nested": [array, 1]}, Step(array, 1.0, {"n": 1})):
        q.put(message)
    got = q.get_many()
    for one in (got[0], got[1]["nested"][0], got[2].observation):
        np.testing.assert_array_equal(one, array)
        assert one.dtype == array.dtype
        assert one.flags.f_contiguous == array.flags.f_contiguous or name == "strided"
        assert one.flags.writeable
    read_only = array.copy()
    read_only.flags.writeable = False
    q.put(read_only)
    np.testing.assert_array_equal(q.get(), read_only)


def test_views_look_into_the_queue_until_the_batch_is_released():
    q = gm.Queue(max_size_bytes=4 << 20)
    large = np.arange(300_000, dtype=np.int64)
    q.put(large)
    q.put({"x": large[:5], "step": Step(large[:1000], 0.5, {})})
    batch = q.get_many(copy=False)
    assert len(batch) == 2
    assert not batch[0].flags.owndata
    np.testing.assert_array_equal(batch[0], large)
    np.testing.assert_array_equal(batch[1]["step"].observation, large[:1000])
    assert q.empty()
    assert q.data_size() > large.nbytes
    with pytest.raises(pyqueue.Full, match=rf"process {os.getpid()} keeps \d+ bytes \(2 messages taken"):
        q.put(large, timeout=0.05)
    assert q.holders()[0]["taken"] == 2
    batch.release()
    batch.release()
    with pytest.raises(ValueError, match="released"):
        batch[0]
    assert q.data_size() == 0
    q.put(large, timeout=10)


def test_a_view_that_outlives_its_batch_keeps_the_space():
    q = gm.Queue()
    q.put(np.arange(10_000))
    view = q.get_many(copy=False)[0]
    gc.collect()
    assert q.data_size() > 0
    np.testing.assert_array_equal(view, np.arange(10_000))
    del view
    gc.collect()
    assert q.data_size() == 0


def test_torch_tensors_are_copied_with_their_type():
    torch = pytest.importorskip("torch")
    q = gm.Queue()
    tensors = [
        torch.arange(2000, dtype=torch.float32).reshape(40, 50).t(),
        torch.ones(3, 4, dtype=torch.bfloat16),
        torch.zeros(0, 5),
        torch.ones(2, requires_grad=True),
        torch.nn.Parameter(torch.ones(2)),
        torch.tensor(3),
    ]
    q.put_many(tensors)
    for sent, got in zip(tensors, q.get_many(), strict=True):
        assert type(got) is type(sent)
        assert got.dtype == sent.dtype
        assert got.requires_grad == sent.requires_grad
        assert torch.equal(got, sent)
    sent = torch.zeros(5000)
    q.put(sent)
    q.get().add_(1)
    assert sent.sum() == 0


def test_close_ends_this_process_and_shutdown_all():
    q = gm.Queue()
    other = pickle.loads(pickle.dumps(q))
    q.put(1)
    q.close()
    assert q.is_closed()
    assert not other.is_closed()
    for call in (lambda: q.put(2), q.get, lambda: q.get_many(), lambda: q.put_many([1])):
        with pytest.raises(ValueError, match="is closed"):
            call()
    q.join_thread()
    other.put(2)
    other.shutdown()
    with pytest.raises(ValueError, match="is closed"):
        other.put(3)
    assert other.get_many() == [1, 2]
    with pytest.raises(ValueError, match="is closed"):
        other.get()


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


WAITS = """
import sys
import gristmill as gm
q = gm.Queue.attach(sys.argv[1])
try:
    q.get() if sys.argv[2] == "get" else q.put_many(range(10))
except KeyboardInterrupt as error:
    print("interrupted", getattr(error, "put", None), flush=True)
"""


@pytest.mark.parametrize("what", ["get", "put"])
def test_ctrl_c_ends_waiting_at_once(what):
    q = gm.Queue(4)
    waits = f"{what}_waits"
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS, q.name, what], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 60
        while q.statistics()[waits] == 0 and time.monotonic() < deadline:
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGINT)
        said = process.communicate(timeout=30)[0]
        assert said == ("interrupted None\n" if what == "get" else "interrupted 4\n")
    finally:
        process.kill()


@pytest.mark.parametrize("what", ["get", "put"])
def test_a_process_killed_while_it_waits_disturbs_nobody(what):
    for _ in range(5):
        q = gm.Queue(4)
        if what == "put":
            q.put_many(range(4))
        process = subprocess.Popen([sys.executable, "-c", WAITS, q.name, what])
        try:
            deadline = time.monotonic() + 60
            while q.statistics()[f"{what}_waits"] == 0 and time.monotonic() < deadline:
                time.sleep(0.002)
        finally:
            process.kill()
            process.wait(30)
        if what == "put":
            assert q.get_many(timeout=10) == list(range(4))
        q.put("after", timeout=10)
        assert q.get(timeout=10) == "after"


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


def test_a_forked_childs_end_leaves_the_queue():
    q = gm.Queue()
    q.put(1)
    child = multiprocessing.get_context("fork").Process(target=lambda: None)
    child.start()
    child.join(30)
    assert q.get(timeout=10) == 1
    assert q.name in [segment.name for segment in gm.list_segments()]


def test_a_reader_keeps_no_memory_of_a_large_message():
    script = """
import resource, gc, re
import gristmill as gm, numpy as np
def resident():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
q = gm.Queue(max_size_bytes=110 << 20)
before = resident()
q.put(np.ones(100 << 20, np.uint8)); a = q.get(); assert a.sum() == 100 << 20; del a; gc.collect()
q.put(b"x" * (100 << 20)); a = q.get(); del a; gc.collect()
q.put((1,)); q.get_many()
print((resident() - before) >> 20)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40


def test_garbage_in_the_queue_is_a_typed_error():
    q = gm.Queue()
    raw = gm.Queue.attach(q.name, serializer="raw")
    for garbage in (
        b"",
        b"\x00",
        b"\xa1",
        b"\xa1\x0b\xff\xff\xff\xff",
        b"\xa1\x0f\x0c\x00\x01" + b"\xff" * 8,
        b"\xa2" * 40,
        b"\xa1\x0e\x01\x00\x00\x00\x0d\x00\x00\x00\x00\x00",  # a dict whose key is a list
    ):
        raw.put(garbage)
        with pytest.raises(ValueError, match="damaged"):
            q.get(timeout=5)
    raw.put(b"\x80\x05garbage")
    with pytest.raises((pickle.UnpicklingError, ValueError, EOFError)):
        q.get(timeout=5)
