"""gristmill.Queue from asyncio: waiting without blocking the loop, cancellation without loss."""

import asyncio
import threading

import pytest

import gristmill as gm


def run(main):
    return asyncio.run(asyncio.wait_for(main, 60))


def test_objects_pass_and_the_loop_goes_on():
    async def main():
        q = gm.Queue(2)
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        taking = asyncio.create_task(q.aget())
        while ticks < 100:
            await asyncio.sleep(0)
        threading.Thread(target=q.put, args=("from a thread",)).start()
        assert await taking == "from a thread"
        putting = asyncio.create_task(q.aput_many(range(10)))
        got = []
        while len(got) < 10:
            got += await q.aget_many()
        await putting
        ticking.cancel()
        assert got == list(range(10))
        await q.aput("last")
        assert await q.aget() == "last"

    run(main())


def test_waiting_calls_are_served_in_order():
    async def main():
        q = gm.Queue()
        calls = [asyncio.create_task(q.aget()) for _ in range(20)]
        await asyncio.sleep(0)
        q.put_many(range(20))
        assert await asyncio.gather(*calls) == list(range(20))

    run(main())


def test_a_cancelled_get_takes_nothing():
    async def main():
        q = gm.Queue()
        for i in range(200):
            taking = asyncio.create_task(q.aget())
            for _ in range(i % 4):
                await asyncio.sleep(0)
            putting = threading.Thread(target=q.put, args=(i,))
            putting.start()
            if i % 3 == 0:
                await asyncio.sleep(0)
            taking.cancel()
            try:
                got = await taking
            except asyncio.CancelledError:
                putting.join(30)
                got = await q.aget()
            assert got == i
            putting.join(30)
        assert q.empty()

    run(main())


def test_a_cancelled_put_has_put_nothing():
    async def main():
        q = gm.Queue(1)
        await q.aput("first")
        putting = asyncio.create_task(q.aput("second"))
        await asyncio.sleep(0.01)
        putting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await putting
        assert await q.aget() == "first"
        await q.aput("third")
        assert q.get_many() == ["third"]

    run(main())


def test_close_ends_waiting():
    async def main():
        q = gm.Queue()
        taking = asyncio.create_task(q.aget())
        await asyncio.sleep(0.01)
        q.close()
        with pytest.raises(ValueError, match="closed"):
            await taking

    run(main())


def test_one_queue_in_several_loops():
    q = gm.Queue()

    async def take():
        return await q.aget()

    for i in range(3):
        threading.Timer(0.01, q.put, (i,)).start()
        assert run(take()) == i
