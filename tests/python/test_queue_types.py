"""What objects pass through a gm.Queue, as which types, and what is said of those that do not."""

import array
import collections
import datetime
import decimal
import enum
import mmap
import pickle
import queue as pyqueue
import threading

import numpy as np
import pytest

import gristmill as gm


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


class Unpicklable:
    def __reduce__(self):
        raise AttributeError("not this one")


class Unloadable:
    def __reduce__(self):
        return _refuse, ()


def _refuse():
    raise LookupError("cannot be loaded")


def test_what_does_not_pickle_is_a_type_error_and_leaves_the_queue_alone():
    q = gm.Queue()
    for refused in (threading.Lock(), mmap.mmap(-1, 100), (i for i in ()), lambda: None):
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
            q.put(refused)
    assert q.empty()
    assert q.data_size() == 0


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
