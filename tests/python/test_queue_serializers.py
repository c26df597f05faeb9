"""gristmill.Queue's serializers: what travels, what is refused with which error, and what bytes from a
hostile process can and cannot do."""

import math
import os
import pickle
import queue as pyqueue
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gristmill as gm

try:
    import msgpack
except ImportError:
    msgpack = None
needs_msgpack = pytest.mark.skipif(msgpack is None, reason="msgpack is not installed")


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def hostile(q):
    """Another process's view of the queue: any bytes."""
    return gm.Queue.attach(q.name, serializer="raw")


def test_raw_and_own_serializers_travel_as_bytes_and_anything_else_is_refused():
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


# ---- msgpack


@needs_msgpack
def test_msgpack_sends_what_msgpack_knows():
    q = gm.Queue(serializer="msgpack")
    values = [
        None,
        True,
        -(2**63),
        2**64 - 1,
        0.1,
        -math.inf,
        "text, é, 世界",
        "",
        b"bytes\x00",
        b"x" * 300_000,
        [1, [2, ["three", b"four"]]],
        {"nested": {"dict": [{"deep": None}]}, "empty": {}},
        {1: "numbers", b"k": "and bytes", "s": "as keys"},
        list(range(10_000)),
    ]
    for value in values:
        q.put(value)
    assert [q.get(timeout=5) for _ in values] == values
    q.put_many(values)
    got = q.get_many(timeout=5)
    while len(got) < len(values):
        got += q.get_many(timeout=5)
    assert got == values
    q.put(math.nan)
    assert math.isnan(q.get())


@needs_msgpack
def test_msgpack_has_lists_only_and_no_types_of_ours():
    q = gm.Queue(serializer="msgpack")
    q.put((1, (2, 3)))
    assert q.get() == [1, [2, 3]]
    q.put(bytearray(b"array"))
    assert q.get() == b"array"


@needs_msgpack
@pytest.mark.parametrize(
    ("message", "error", "words"),
    [
        (np.arange(3), TypeError, "ndarray"),
        ({"scalar": np.float32(1)}, TypeError, "float32"),
        ({1, 2}, TypeError, "set"),
        (1 + 2j, TypeError, "complex"),
        (object(), TypeError, "object"),
        (2**64, OverflowError, "range"),
        ("\ud800", UnicodeEncodeError, "surrogates"),
    ],
)
def test_msgpack_refuses_the_rest_at_the_put_and_sends_the_others(message, error, words):
    q = gm.Queue(serializer="msgpack")
    with pytest.raises(error, match=words):
        q.put(message)
    assert q.empty()
    with pytest.raises(error) as caught:
        q.put_many([1, message, 3])
    assert caught.value.put == 2
    assert q.get_many() == [1, 3]


@needs_msgpack
def test_an_attached_queue_knows_its_serializer():
    q = gm.Queue(serializer="msgpack")
    other = gm.Queue.attach(q.name)
    assert other.serializer == q.serializer == "msgpack"
    q.put({"a": [1]})
    assert other.get(timeout=5) == {"a": [1]}
    assert pickle.loads(pickle.dumps(q)).serializer == "msgpack"


def test_without_msgpack_it_is_said_how_to_mend_it():
    script = """
import sys
sys.modules["msgpack"] = None
import gristmill as gm
try:
    gm.Queue(serializer="msgpack")
except ImportError as error:
    print(error)
print(len(gm.list_segments()) - int(sys.argv[1]))
"""
    before = str(len(gm.list_segments()))
    done = subprocess.run([sys.executable, "-c", script, before], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said, _, left = done.stdout.partition("\n")
    assert "pip install msgpack" in said
    assert int(left) == 0


MALFORMED = [
    b"",
    b"\xc1",  # no such type
    b"\x92\x01",  # two elements, and one there
    b"\xdd\xff\xff\xff\xff",  # four thousand million elements, and none there
    b"\xdb\xff\xff\xff\xff",
    b"\xa3\xff\xfe\xfd",  # text that is not UTF-8
    b"\x01\x02",  # more than a message
    b"\x81\x90\x01",  # a dict whose key is a list
    b"\x91" * 5000,  # too deep
]


@needs_msgpack
@pytest.mark.parametrize("data", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_msgpack_is_an_error_that_holds_the_bytes(data):
    q = gm.Queue(serializer="msgpack")
    hostile(q).put_many([data, msgpack.packb("good")])
    with pytest.raises((ValueError, TypeError)) as caught:
        q.get(timeout=5)
    assert caught.value.payload == data
    assert q.get(timeout=5) == "good"


@needs_msgpack
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_message_or_an_error(shared_msgpack, data):
    q, other = shared_msgpack
    other.put(data)
    try:
        q.get(timeout=5)
    except (ValueError, TypeError) as error:
        kept = error.payload
    else:
        kept = data
    assert kept == data
    assert q.empty()


@pytest.fixture(scope="module")
def shared_msgpack():
    q = gm.Queue(serializer="msgpack")
    return q, hostile(q)


@pytest.mark.parametrize("serializer", [pytest.param("msgpack", marks=needs_msgpack), "raw", "own"])
def test_nothing_is_executed_unless_it_is_unpickled(tmp_path, serializer):
    path = str(tmp_path / "executed")
    data = pickle.dumps(Bomb(path))
    if serializer == "own":
        q = gm.Queue(loads=lambda data: data.decode("latin-1"), dumps=lambda text: text.encode())
    else:
        q = gm.Queue(serializer=serializer)
    other = hostile(q)
    codec = gm.Queue()
    codec.put(Bomb(path))
    for message in (data, hostile(codec).get()):  # as pickle makes it, and as our own queue does
        other.put(message)
        try:
            q.get(timeout=5)
        except ValueError:
            assert serializer == "msgpack"
        other.put(message)
        try:
            with q.get_many(timeout=5, copy=False) as batch:
                list(batch)
        except ValueError:
            assert serializer == "msgpack"
    assert not os.path.exists(path)
    # The bomb is one: with pickle, which is for those who trust each other, it goes off.
    trusting = gm.Queue()
    hostile(trusting).put(data)
    trusting.get(timeout=5).close()
    assert os.path.exists(path)


# ---- raw


def test_raw_sends_bytes_of_any_size_and_nothing_else():
    q = gm.Queue(serializer="raw", max_size_bytes=8 << 20)
    sizes = [0, 1, 15, 16, 4095, 4096, 4097, 70_000, 3_000_000]
    for size in sizes:
        sent = os.urandom(size)
        q.put(sent)
        got = q.get(timeout=5)
        assert type(got) is bytes
        assert got == sent
    messages = [os.urandom(size) for size in sizes]
    q.put_many(messages)
    with q.get_many(copy=False) as batch:
        for message, view in zip(messages, batch, strict=False):
            assert isinstance(view, memoryview)
            assert view == message
    for refused in ("text", 1, None, [b"x"], np.arange(4)[::2], memoryview(b"abcd")[::2]):
        with pytest.raises(TypeError, match="bytes"):
            q.put(refused)
    with pytest.raises(TypeError) as caught:
        q.put_many([b"one", "two", b"three"])
    assert caught.value.put == 2


def test_raw_sends_the_memory_of_arrays_as_it_is():
    q = gm.Queue(serializer="raw")
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    q.put(array)
    assert q.get() == array.tobytes()
    q.put(np.asfortranarray(array))
    assert q.get() in (array.tobytes("F"), array.tobytes("C"))


# ---- one's own


def test_loads_that_raises_loses_nothing_and_says_which():
    def loads(data):
        if data.startswith(b"bad"):
            raise LookupError(data.decode())
        return data.decode()

    q = gm.Queue(loads=loads, dumps=str.encode)
    q.put_many(["1", "bad 2", "3", "bad 4", "bad 5", "6"])
    assert q.get_many() == ["1", "3", "6"]
    for bad in ("bad 2", "bad 4", "bad 5"):
        with pytest.raises(LookupError, match=bad) as caught:
            q.get_many(block=False)
        assert caught.value.payload == bad.encode()
    with pytest.raises(pyqueue.Empty):
        q.get_many(block=False)


def test_dumps_that_raises_or_returns_no_bytes_puts_nothing_of_its_message():
    def dumps(number):
        if number == 2:
            raise LookupError("not two")
        return "text" if number == 3 else bytes([number])

    q = gm.Queue(loads=list, dumps=dumps)
    for number, error in ((2, LookupError), (3, TypeError)):
        with pytest.raises(error):
            q.put(number)
        with pytest.raises(error) as caught:
            q.put_many([1, number, 4])
        assert caught.value.put == 2
    assert q.get_many() == [[1], [4], [1], [4]]


def test_loads_alone_or_dumps_alone_leave_the_other_to_pickle():
    loading = gm.Queue(loads=lambda data: ("seen", pickle.loads(data)))
    loading.put({"a": 1})
    assert loading.get() == ("seen", {"a": 1})
    dumping = gm.Queue(dumps=lambda obj: pickle.dumps([obj]))
    dumping.put({"a": 1})
    assert dumping.get() == [{"a": 1}]


def test_a_queue_with_functions_of_its_own_is_attached_with_them():
    q = gm.Queue(loads=bytes.decode, dumps=str.encode)
    with pytest.raises(ValueError, match="give loads and dumps"):
        gm.Queue.attach(q.name)
    other = gm.Queue.attach(q.name, loads=bytes.decode, dumps=str.encode)
    q.put("text")
    assert other.get(timeout=5) == "text"
    with pytest.raises(ValueError, match="one or the other"):
        gm.Queue(serializer="raw", loads=bytes.decode)


def test_a_serializer_may_use_queues_itself():
    inner = gm.Queue()

    def dumps(obj):
        inner.put(obj)
        return pickle.dumps(inner.get())

    q = gm.Queue(dumps=dumps)
    q.put_many([[i] for i in range(100)])
    assert q.get_many() == [[i] for i in range(100)]
