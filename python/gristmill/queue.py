"""gristmill.Queue: a FIFO of Python objects between processes, in shared memory.

It replaces multiprocessing.Queue and faster_fifo.Queue. What it promises:

- A put that returned is delivered exactly once as long as one consumer lives; what a consumer had taken
  when it was killed died with it. Nothing else is lost, doubled or torn, whoever is killed, wherever.
- First in, first out: for each producer, and for all in the order in which messages were completed.
- Timeouts run on the monotonic clock; None and infinity wait without limit, negative ones are refused.
- `maxsize` (messages) and `max_size_bytes` both bound it. What can never fit is a ValueError at once.

There is no feeder thread: when put returns, the message is in the queue.
"""

from __future__ import annotations

import functools
import pickle
import uuid
from collections.abc import Callable, Iterable
from queue import Empty, Full
from typing import TYPE_CHECKING, Any

from gristmill._core import MessageBatch, MessageQueue, segment_name

if TYPE_CHECKING:
    from gristmill.queue_async import Waiter

__all__ = ["MessageBatch", "Queue"]

DEFAULT_MAX_SIZE_BYTES = 16 << 20
SERIALIZERS = ("pickle", "raw", "msgpack")
_ATTACH_TIMEOUT = 5.0


class Queue(MessageQueue):
    """A FIFO of any objects that pickle, for any number of producers and consumers.

    maxsize: messages it holds at most; 0: as many as fit. max_size_bytes: of messages in it together, and
    hence of one message; this much shared memory is reserved. serializer: "pickle" (any object, arrays
    without a copy of their own), "raw" (bytes-like objects, which come out as bytes) or "msgpack"; or own
    dumps(object) -> bytes-like and loads(bytes) -> object. overflow: what a put does when the queue is full:
    "block", "drop_oldest", or "latest", which keeps nothing but the newest message; what is dropped is
    counted in statistics()["dropped"].

    Pass it to child processes as an argument (fork, spawn, forkserver), or attach to it by its name.
    Raises SegmentError when /dev/shm cannot hold it.
    """

    def __init__(
        self,
        maxsize: int = 0,
        *,
        max_size_bytes: int = DEFAULT_MAX_SIZE_BYTES,
        loads: Callable[[bytes], Any] | None = None,
        dumps: Callable[[Any], Any] | None = None,
        serializer: str | None = None,
        overflow: str = "block",
    ) -> None:
        if max_size_bytes < 1:
            raise ValueError(f"max_size_bytes is {max_size_bytes}; expected at least 1")
        serializer = _serializer(serializer, loads, dumps)
        self._serialize_with(serializer, loads, dumps)
        # The name tells an attaching process what the messages are.
        name = segment_name("queue", f"{uuid.uuid4().hex[:12]}-{serializer}")
        self._create(name, max(maxsize, 0), max_size_bytes, overflow)

    @classmethod
    def attach(
        cls,
        name: str,
        *,
        timeout: float = _ATTACH_TIMEOUT,
        loads: Callable[[bytes], Any] | None = None,
        dumps: Callable[[Any], Any] | None = None,
        serializer: str | None = None,
    ):
        """The queue that another process created under this name (its `name`).

        Its own serializer by default; own loads and dumps must be given again. Raises SegmentError for
        anything that is not a healthy queue.
        """
        if serializer is None and loads is None and dumps is None:
            serializer = name.rpartition("-")[2]
            if serializer == "own":
                raise ValueError(f"queue {name} has a serializer of its own; give loads and dumps")
            if serializer not in SERIALIZERS:
                serializer = "pickle"
        made = cls.__new__(cls)
        made._serialize_with(_serializer(serializer, loads, dumps), loads, dumps)
        made._attach(name, timeout)
        return made

    def _serialize_with(self, serializer: str, loads, dumps, *, views=False, default_timeout=None) -> None:
        self._serializer = serializer
        self._given = (loads, dumps)
        if serializer == "msgpack":
            loads, dumps = _msgpack()
        elif serializer == "own":
            loads, dumps = loads or pickle.loads, dumps or _pickle_dumps
        self._configure(serializer, loads, dumps, views, default_timeout)
        self._waiters: dict[str, Waiter] = {}

    # ---- Pickling, by name

    def __reduce__(self):
        return _attached, (type(self), self._name(), self._serializer, self._given)

    # ---- What multiprocessing.Queue has besides put and get

    def qsize(self) -> int:
        """Messages put and not taken."""
        return self._size()

    def empty(self) -> bool:
        """Whether there is nothing to take."""
        return self._size() == 0

    def full(self) -> bool:
        """Whether a put of the smallest message would wait."""
        return not self._room()

    def close(self) -> None:
        """Ends this process's use of it: put and get raise ValueError from now on, also those that wait.

        Other processes go on. See shutdown().
        """
        self._close()

    def join_thread(self) -> None:
        """Returns at once, since there is no feeder thread. Only after close()."""
        if not self._closed():
            raise AssertionError(f"Queue {self!r} not closed")

    def cancel_join_thread(self) -> None:
        """Does nothing: there is no feeder thread to wait for."""

    # ---- More

    def shutdown(self) -> None:
        """Ends it for all processes: puts raise ValueError, and so do gets when nothing is left to take."""
        self._shut_down()

    def is_closed(self) -> bool:
        """Whether this process closed it, or anyone shut it down."""
        return self._closed() or self._is_shut_down()

    def data_size(self) -> int:
        """Bytes in use: messages, 8 bytes and padding to 16 for each, and batches not yet released."""
        return self._bytes_used()

    @property
    def name(self) -> str:
        """What attach() takes."""
        return self._name()

    @property
    def maxsize(self) -> int:
        """Messages it holds at most; 0: as many as fit."""
        return self._max_messages()

    @property
    def max_size_bytes(self) -> int:
        """Bytes of messages that it holds at most."""
        return self._max_bytes()

    @property
    def serializer(self) -> str:
        """ "pickle", "raw", "msgpack" or "own"."""
        return self._serializer

    @property
    def overflow(self) -> str:
        """What a put does when it is full: "block", "drop_oldest" or "latest"."""
        return self._overflow()

    def statistics(self) -> dict[str, int]:
        """Counts of all processes: puts, gets, put_waits, get_waits, skipped, dropped, owner_deaths.

        skipped: messages that died with their producer half-written. dropped: by `overflow`.
        """
        return self._statistics()

    def holders(self) -> list[dict[str, int]]:
        """Who keeps space: {pid, taken, reserved, bytes} of each process with batches not yet released."""
        return self._holders()

    def recover(self) -> int:
        """Frees at once what dead processes left, which waiting puts and gets do too; returns how much."""
        return self._recover()

    def unlink(self) -> None:
        """Removes the name now, so that nobody can attach any more. The creator's end does it too."""
        self._unlink()

    # ---- asyncio

    async def aget(self) -> Any:
        """Waits for one object without blocking the event loop. A cancelled call takes nothing."""
        return await self._when_readable(self.get_nowait)

    async def aget_many(self, max_messages_to_get: int = 1_000_000_000) -> list[Any]:
        """get_many for event loops: at least one object. A cancelled call takes nothing."""
        return await self._when_readable(lambda: self.get_many_nowait(max_messages_to_get))

    async def aput(self, obj: Any) -> None:
        """Waits for space without blocking the event loop. A cancelled call has put nothing."""
        from gristmill.queue_async import waiter_for

        def attempt():
            needed = self._try_put(obj)
            return needed == 0, needed

        def sleep(needed):
            return lambda seconds: self._wait_writable(needed, seconds) or self._closed()

        await waiter_for(self, "writable").call(attempt, sleep)

    async def aput_many(self, xs: Iterable[Any]) -> None:
        """put_many for event loops. A cancelled call may have put the first of them."""
        left = list(xs)
        while left:
            try:
                self.put_many_nowait(left)
                return
            except Full as full:
                left = left[full.put :]  # type: ignore[attr-defined]
            await self.aput(left.pop(0))

    async def _when_readable(self, get: Callable[[], Any]) -> Any:
        from gristmill.queue_async import waiter_for

        def attempt():
            try:
                return True, get()
            except Empty:
                return False, None

        def sleep(_):
            return lambda seconds: self._wait_readable(seconds) or self._closed()

        return await waiter_for(self, "readable").call(attempt, sleep)

    def __repr__(self) -> str:
        try:
            return f"<{type(self).__name__} {self._name()}, {self._size()} messages>"
        except ValueError:
            return f"<{type(self).__name__}, not created>"


def _serializer(serializer: str | None, loads, dumps) -> str:
    if serializer == "own" or (serializer is None and (loads is not None or dumps is not None)):
        return "own"
    if serializer is None:
        return "pickle"
    if serializer not in SERIALIZERS:
        raise ValueError(f"serializer is {serializer!r}; expected one of {', '.join(map(repr, SERIALIZERS))}")
    if loads is not None or dumps is not None:
        raise ValueError(
            f"serializer is {serializer!r}, and loads or dumps are given: expected one or the other"
        )
    return serializer


def _msgpack():
    try:
        import msgpack
    except ImportError as error:
        raise ImportError("serializer='msgpack' needs the package msgpack: pip install msgpack") from error
    # What packb takes comes out again: keys of dicts may be numbers, too.
    return functools.partial(msgpack.unpackb, strict_map_key=False), msgpack.packb


def _pickle_dumps(obj: Any) -> bytes:
    return pickle.dumps(obj, pickle.HIGHEST_PROTOCOL)


def _attached(cls, name, serializer, given):
    loads, dumps = given
    return cls.attach(name, loads=loads, dumps=dumps, serializer=serializer)
