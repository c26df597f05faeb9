"""gm.Queue: what it shares with multiprocessing.Queue, its bounds, many messages at once, its end."""

import asyncio
import inspect
import multiprocessing
import multiprocessing.queues
import pickle
import queue as pyqueue
import threading

import pytest
from running import await_until

import gristmill as gm


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


def test_what_can_never_fit_is_refused_at_once_with_both_sizes():
    q = gm.Queue(max_size_bytes=1 << 16)
    for call in (lambda: q.put(b"x" * 200_000), lambda: q.put_many([b"x" * 200_000])):
        with pytest.raises(ValueError, match=r"2000\d\d bytes .* up to 6\d\d\d\d bytes"):
            call()
    q.put(b"x" * 60_000)
    assert len(q.get()) == 60_000


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


def test_get_many_returns_at_once_with_what_is_there():
    q = gm.Queue()
    q.put(1)
    assert q.get_many(timeout=None, max_messages_to_get=100) == [1]
    q.put_many(range(10))
    assert q.get_many(True, None, 4) == [0, 1, 2, 3]
    with q.get_many(True, None, copy=False) as batch:
        assert list(batch) == [4, 5, 6, 7, 8, 9]


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
