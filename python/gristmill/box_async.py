"""Waiting for a box in asyncio: a thread sleeps, the event loop goes on."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from gristmill import _box

if TYPE_CHECKING:
    from gristmill.box import Box

# How long a thread goes on sleeping for a waiter that is gone.
_SLICE_S = 0.05


async def wait_for_version(box: Box, version: int, timeout: float | None) -> int:
    """See Box.awatch."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[int] = loop.create_future()
    over = threading.Event()

    def settle(newest: int | None, error: BaseException | None) -> None:
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        elif newest is not None:
            result.set_result(newest)

    def sleep() -> None:
        newest, error = None, None
        try:
            while newest is None and not over.is_set():
                newest = _box.watch_once(box, version, _SLICE_S, None)
        except BaseException as raised:
            error = raised
        if not over.is_set():
            loop.call_soon_threadsafe(settle, newest, error)

    threading.Thread(target=sleep, daemon=True, name="gristmill-awatch").start()
    try:
        async with asyncio.timeout(timeout):
            return await result
    finally:
        over.set()
