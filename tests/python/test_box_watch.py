"""Waiting for the box's next version: watch, changes, asyncio."""

import asyncio
import threading

import pytest


def test_changes_yields_each_version_that_is_seen(box):
    changes = box.changes(timeout=30)
    assert next(changes).step == 0
    threading.Timer(0.02, setattr, (box, "step", 3)).start()
    assert next(changes).step == 3
    with pytest.raises(TimeoutError, match="no version after"):
        list(box.changes(timeout=0.01))


def test_awatch_waits_in_asyncio_while_the_loop_goes_on(box):
    async def main():
        ticks = 0
        waiting = asyncio.ensure_future(box.awatch(box.version))
        while ticks < 3:
            await asyncio.sleep(0.001)
            ticks += 1
        assert not waiting.done()
        box.step = 1
        assert await waiting == 2
        with pytest.raises(TimeoutError):
            await box.awatch(2, timeout=0.01)
        cancelled = asyncio.ensure_future(box.awatch(2))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    asyncio.run(asyncio.wait_for(main(), 30))


def test_watch_with_a_spin_budget_sees_the_next_version(box):
    threading.Timer(0.01, setattr, (box, "step", 3)).start()
    assert box.watch(1, timeout=30, spin=0.005) == 2
