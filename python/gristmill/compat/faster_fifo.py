"""faster_fifo's names, signatures and defaults: replace `import faster_fifo` by

    from gristmill.compat import faster_fifo

and `from faster_fifo import Queue` by `from gristmill.compat.faster_fifo import Queue`.

Where faster_fifo 1.5.2 is at fault, this is not:

- A negative time-out is a ValueError; theirs never returns. None and infinity wait without limit.
- A message that can never fit is a ValueError at once, naming both sizes; theirs is Full after the time-out.
- put_many of more than the queue holds goes in in parts; Full has `put`, how many went in. Theirs never fits.
- dumps must return bytes-like objects: a str is a TypeError; theirs sends the memory of the str object.
- loads is given a view of a private copy; theirs is overwritten by the next get.
- Empty means empty; theirs may mean that a buffer had to grow.
- A message that loads or dumps refuses is reported, and the others arrive; theirs loses the batch.
- A process killed in a call, or stopped, disturbs nobody; theirs may block all for ever.
- After close(), which is seen by all processes here as well, a put is a ValueError, and a get takes what is
  left, then raises Empty at once. Theirs go on as if nothing had happened.

As with theirs, torch's tensors travel as torch.multiprocessing has it: by a handle of their memory, which
sender and receiver then share. (gristmill.Queue copies them.)

Sizes: every message takes 8 bytes and padding to 16 in the queue, as data_size() tells.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from multiprocessing import context
from queue import Empty, Full
from typing import Any

from gristmill._core import segment_name
from gristmill.queue import Queue as _Queue

__all__ = ["DEFAULT_CIRCULAR_BUFFER_SIZE", "DEFAULT_TIMEOUT", "Empty", "Full", "Queue", "QueueError"]

DEFAULT_TIMEOUT = float(10)
DEFAULT_CIRCULAR_BUFFER_SIZE = 1000 * 1000
INITIAL_RECV_BUFFER_SIZE = 5000

_ForkingPickler = context.reduction.ForkingPickler


class QueueError(Exception):
    """put_many of what is neither a list nor a tuple."""


class Queue(_Queue):
    """faster_fifo.Queue. Subclasses may override loads(msg_bytes) and dumps(obj)."""

    def __init__(
        self,
        max_size_bytes: int = DEFAULT_CIRCULAR_BUFFER_SIZE,
        maxsize: int = int(1e9),
        loads: Callable[[Any], Any] | None = None,
        dumps: Callable[[Any], Any] | None = None,
    ) -> None:
        self._serialize(loads, dumps)
        name = segment_name("queue", f"{uuid.uuid4().hex[:12]}-faster_fifo")
        # Counts that no queue of bytes reaches are none.
        self._create(name, maxsize if 0 < maxsize < 1 << 26 else 0, max_size_bytes, "block")
        self._requested_maxsize = maxsize

    def _serialize(self, loads, dumps) -> None:
        self.last_error: str | None = None
        self._requested_maxsize = int(1e9)
        if loads is not None:
            self.loads = loads
        if dumps is not None:
            self.dumps = dumps
        kind = type(self)
        own = loads or dumps or kind.loads is not Queue.loads or kind.dumps is not Queue.dumps
        self._serialize_with(
            "own" if own else "pickle by handle",
            self.loads if own else None,
            self.dumps if own else None,
            views=True,
            default_timeout=DEFAULT_TIMEOUT,
        )
        self._own = (loads, dumps)

    @classmethod
    def attach(cls, name: str, *, timeout: float = 5.0, loads=None, dumps=None):
        made = cls.__new__(cls)
        made._serialize(loads, dumps)
        made._attach(name, timeout)
        return made

    def __reduce__(self):
        kept = {
            k: v for k, v in self.__dict__.items() if not k.startswith("_") and k not in ("loads", "dumps")
        }
        return _attached, (type(self), self._name(), *self._own, self._requested_maxsize), kept

    def loads(self, msg_bytes):
        return _ForkingPickler.loads(msg_bytes)

    def dumps(self, obj):
        return _ForkingPickler.dumps(obj).tobytes()

    @property
    def maxsize(self) -> int:
        return self._requested_maxsize

    @property
    def max_bytes_to_read(self) -> int:
        return self.max_size_bytes

    def put_many(self, xs, block=True, timeout=DEFAULT_TIMEOUT):
        if not isinstance(xs, (list, tuple)):
            self.last_error = f"put_many() expects a list or tuple, got {type(xs)}"
            raise QueueError(self.last_error)
        super().put_many(xs, block, timeout)

    def put_many_nowait(self, xs):
        self.put_many(xs, block=False)

    def get_many(self, block=True, timeout=DEFAULT_TIMEOUT, max_messages_to_get=int(1e9)):
        try:
            return super().get_many(block, timeout, max_messages_to_get)
        except ValueError:
            self._raise_empty_if_over()
            raise

    def get_many_nowait(self, max_messages_to_get=int(1e9)):
        return self.get_many(block=False, max_messages_to_get=max_messages_to_get)

    def get(self, block=True, timeout=DEFAULT_TIMEOUT):
        try:
            return super().get(block, timeout)
        except ValueError:
            self._raise_empty_if_over()
            raise

    def get_nowait(self):
        return self.get(block=False)

    def _raise_empty_if_over(self) -> None:
        # ValueError may also come from loads, or an argument: only an ended queue is over.
        if self._is_shut_down() and self._size() == 0:
            raise Empty from None

    def close(self) -> None:
        self._shut_down()

    def is_closed(self) -> bool:
        return self._is_shut_down()

    def join_thread(self) -> None:
        pass


def _attached(cls, name, loads, dumps, maxsize):
    made = cls.attach(name, loads=loads, dumps=dumps)
    made._requested_maxsize = maxsize
    return made
