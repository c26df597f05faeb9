"""The asyncio face of gristmill.Queue.

A thread for each queue, event loop and direction sleeps in the queue until something may be done, and
tells the loop, which then tries without waiting. The thread itself takes and puts nothing: a call that is
cancelled has no message on its hands. Between waits it sleeps until it is needed again.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from gristmill.queue import Queue

# The thread notices within this time, in seconds, that its call was cancelled.
_SLICE = 0.05


class Sleep(Protocol):
    """Sleeps in the queue until something may be done, at most so many seconds; whether it may."""

    def __call__(self, seconds: float) -> bool: ...


class Waiter:
    """Calls that wait for the same thing: one at a time, in order. Methods: the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._lock = asyncio.Lock()
        self._requests: SimpleQueue[_Request | None] = SimpleQueue()
        self._request: _Request | None = None
        self._thread = threading.Thread(
            target=_serve, args=(self._requests, loop), name="gristmill-queue", daemon=True
        )
        self._thread.start()
        self._finalizer = weakref.finalize(self, self._requests.put, None)
        _waiters.add(self)

    async def call(self, attempt: Callable[[], tuple[bool, Any]], sleep: Callable[[Any], Sleep]) -> Any:
        """attempt() until its first result is true; returns the second. sleep(the second) waits otherwise."""
        async with self._lock:
            while True:
                done, result = attempt()
                if done:
                    return result
                self._request = _Request(sleep(result), self.loop.create_future())
                self._requests.put(self._request)
                try:
                    await self._request.woken
                finally:
                    self._request.cancelled = True

    def end(self) -> None:
        """At the interpreter's end: threads must not come back from C++ into what is gone."""
        if self._request is not None:
            self._request.cancelled = True
        self._finalizer()
        self._thread.join(10 * _SLICE)


class _Request:
    def __init__(self, sleep: Sleep, woken: asyncio.Future[None]) -> None:
        self.sleep = sleep
        self.woken = woken
        self.cancelled = False

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)


def _serve(requests: SimpleQueue[_Request | None], loop: asyncio.AbstractEventLoop) -> None:
    while (request := requests.get()) is not None:
        while not request.cancelled and not request.sleep(_SLICE):
            pass
        try:
            loop.call_soon_threadsafe(request.wake)
        except RuntimeError:  # the loop is closed: nobody waits
            pass
        del request


_waiters: weakref.WeakSet[Waiter] = weakref.WeakSet()


@atexit.register
def _end() -> None:
    for waiter in list(_waiters):
        waiter.end()


def waiter_for(queue: Queue, direction: str) -> Waiter:
    """The queue's waiter of the running loop. A forked child makes its own: threads are not inherited."""
    loop = asyncio.get_running_loop()
    waiters = queue._waiters
    found = waiters.get(direction)
    if found is None or found.loop is not loop or not found._thread.is_alive():
        found = waiters[direction] = Waiter(loop)
    return found
