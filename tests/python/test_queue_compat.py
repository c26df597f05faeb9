"""gristmill.compat.faster_fifo: its names and defaults, without its faults."""

import inspect
import multiprocessing
import pickle
import queue as pyqueue
import time

import pytest

from gristmill.compat import faster_fifo

SIGNATURES = {
    "__init__": "(self, max_size_bytes=1000000, maxsize=1000000000, loads=None, dumps=None)",
    "put": "($self, obj, block=True, timeout=None)",
    "put_many": "(self, xs, block=True, timeout=10.0)",
    "put_many_nowait": "(self, xs)",
    "get": "(self, block=True, timeout=10.0)",
    "get_nowait": "(self)",
    "get_many": "(self, block=True, timeout=10.0, max_messages_to_get=1000000000)",
    "get_many_nowait": "(self, max_messages_to_get=1000000000)",
}


def test_names_and_signatures():
    assert faster_fifo.Full is pyqueue.Full
    assert faster_fifo.Empty is pyqueue.Empty
    for name in (
        "qsize",
        "data_size",
        "empty",
        "full",
        "close",
        "is_closed",
        "join_thread",
        "cancel_join_thread",
    ):
        assert callable(getattr(faster_fifo.Queue, name))
    for name, expected in SIGNATURES.items():
        if name != "put":
            signature = inspect.signature(getattr(faster_fifo.Queue, name))
            plain = signature.replace(
                parameters=[
                    p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()
                ],
                return_annotation=inspect.Signature.empty,
            )
            assert str(plain) == expected


def test_its_example():
    q = faster_fifo.Queue(1000 * 1000)
    q.put({"a": 123, "b": "message"})
    q.put_many([1, 2, 3])
    assert q.get() == {"a": 123, "b": "message"}
    assert q.get_many(max_messages_to_get=10) == [1, 2, 3]
    assert q.empty()
    assert not q.full()
    with pytest.raises(faster_fifo.Empty):
        q.get_nowait()
    with pytest.raises(faster_fifo.QueueError):
        q.put_many({1, 2})
    assert "list or tuple" in q.last_error


class Shouting(faster_fifo.Queue):
    def dumps(self, obj):
        return obj.upper().encode()

    def loads(self, msg_bytes):
        return msg_bytes.tobytes().decode()


def _echo(there, back):
    back.put(there.get())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_subclasses_and_children(method):
    context = multiprocessing.get_context(method)
    there, back = Shouting(), faster_fifo.Queue(maxsize=5)
    child = context.Process(target=_echo, args=(there, back))
    child.start()
    there.put("loud")
    assert back.get(timeout=60) == "LOUD"
    child.join(60)
    copy = pickle.loads(pickle.dumps(back))
    assert copy.maxsize == 5


def test_own_serializers_as_arguments():
    q = faster_fifo.Queue(dumps=lambda n: b"x" * n, loads=len)
    q.put_many([3, 5])
    assert q.get_many() == [3, 5]
    with pytest.raises(TypeError, match="str"):
        faster_fifo.Queue(dumps=str).put(1)


def test_its_faults_are_not_there():
    q = faster_fifo.Queue(100_000)
    with pytest.raises(ValueError, match="timeout is -1"):
        q.get(timeout=-1)
    begin = time.monotonic()
    with pytest.raises(ValueError, match="can never fit"):
        q.put(b"x" * 1_000_000)
    assert time.monotonic() - begin < faster_fifo.DEFAULT_TIMEOUT
    q.put_many([b"x" * 50_000, 1])
    assert len(q.get(block=False)) == 50_000  # theirs: Empty, since its buffer has to grow
    assert q.get() == 1


def test_close_is_for_all():
    q = faster_fifo.Queue()
    q.put(1)
    other = pickle.loads(pickle.dumps(q))
    other.close()
    assert q.is_closed()
    with pytest.raises(ValueError, match="is closed"):
        q.put(2)
    assert q.get() == 1
    with pytest.raises(faster_fifo.Empty):
        q.get_many()


def _add_one(q):
    q.get(timeout=60)["weights"].add_(1)


def test_tensors_travel_by_handle_as_theirs_do():
    # Sample Factory's workers see the learner's new parameters because of it.
    torch = pytest.importorskip("torch")
    q = faster_fifo.Queue()
    weights = torch.zeros(1000).share_memory_()
    child = multiprocessing.get_context("spawn").Process(target=_add_one, args=(q,))
    child.start()
    q.put({"weights": weights})
    child.join(60)
    assert child.exitcode == 0
    assert weights.sum() == 1000


def test_the_view_that_loads_gets_stays_as_it_is():
    q = faster_fifo.Queue(loads=lambda view: view, dumps=bytes)
    for size in (100, 20_000):
        q.put(b"a" * size)
        kept = q.get()
        q.put(b"b" * size)
        q.get()
        assert isinstance(kept, memoryview)
        assert kept == b"a" * size


def test_a_batch_survives_a_message_that_loads_refuses():
    def loads(view):
        if view == b"bad":
            raise LookupError("refused")
        return bytes(view)

    q = faster_fifo.Queue(loads=loads, dumps=bytes)
    q.put_many([b"one", b"bad", b"three"])
    assert q.get_many() == [b"one", b"three"]
    with pytest.raises(LookupError, match="refused"):
        q.get_many()
    with pytest.raises(faster_fifo.Empty):
        q.get_many_nowait()
