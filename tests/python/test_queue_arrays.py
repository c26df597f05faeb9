"""Arrays through a gm.Queue: whatever their strides, copied once, and what is kept of their memory."""

import gc
import multiprocessing as mp
import time
import tracemalloc
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, Full
from typing import Any

import numpy as np
import pytest

import gristmill as gm

MIB = 1 << 20
fork = mp.get_context("fork")


@dataclass
class Sample:
    """Not plain: it pickles, with its arrays out of band."""

    name: str
    array: Any


def base(dtype=np.float64):
    return np.arange(60 * 80).reshape(60, 80).astype(dtype)


STRIDED = {
    "every other column": base()[:, ::2],
    "backwards": base()[::-1, ::-1],
    "transposed slice": base()[10:50, 5:75].T,
    "one byte of each": base(np.int64).view(np.uint8)[:, ::8],
    "broadcast": np.broadcast_to(base()[:1], (60, 80)),
    "datetime": base(np.int64).view("M8[s]")[:, ::3],
    "structured": np.zeros((300, 4), [("a", "i4"), ("b", "f8"), ("c", "S5")])[::2],
    "other byte order": base(">f8")[::2],
    "small": base()[:4, :4],
}


@pytest.mark.parametrize("name", STRIDED)
@pytest.mark.parametrize("copy", [True, False])
def test_a_strided_array_within_an_object_comes_out_equal(name, copy):
    queue = gm.Queue(max_size_bytes=MIB)
    array = STRIDED[name]
    # The other array is contiguous, and the first occurs twice: it is one array on the other side too.
    queue.put(Sample(name, [array, base(), array]))
    batch = queue.get_many(copy=copy)
    (got,) = batch
    assert type(got) is Sample
    first, second, third = got.array
    assert first.dtype == array.dtype
    np.testing.assert_array_equal(first, array)
    np.testing.assert_array_equal(second, base())
    assert third is first
    first[...] = second[0, 0]
    del got, first, second, third
    if not copy:
        batch.release()


def test_a_strided_array_of_objects_comes_out_equal():
    queue = gm.Queue(max_size_bytes=MIB)
    array = np.array([["x" * n, n] for n in range(200)], object)[::2]
    queue.put(Sample("objects", array))
    np.testing.assert_array_equal(queue.get().array, array)


def test_a_strided_array_within_an_object_takes_no_memory_on_its_way_in():
    queue = gm.Queue(max_size_bytes=24 * MIB)
    array = np.ones((2048, 2048), np.float32)[:, ::2]
    queue.put(Sample("first", array))  # what is imported and kept at the first time
    queue.get()
    tracemalloc.start()
    queue.put(Sample("second", array))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < array.nbytes / 8
    np.testing.assert_array_equal(queue.get().array, array)


def test_put_many_puts_strided_arrays_too():
    queue = gm.Queue(max_size_bytes=MIB)
    queue.put_many([Sample("a", base()[::2]), base()[:, ::2], 3, Sample("b", base()[::3])])
    a, plain, three, b = queue.get_many()
    np.testing.assert_array_equal(a.array, base()[::2])
    np.testing.assert_array_equal(plain, base()[:, ::2])
    assert three == 3
    np.testing.assert_array_equal(b.array, base()[::3])


def private_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon:"))


@pytest.mark.parametrize("size", [100 * MIB, 40 * MIB])
def test_what_a_large_message_took_is_given_back_but_for_a_bounded_rest(size):
    queue = gm.Queue(max_size_bytes=size + MIB)
    before = private_bytes()
    for make in (np.ones, lambda *_: bytes(size), lambda *_: Sample("x", np.ones(size // 8))):
        queue.put(make(size, np.uint8))
        queue.get()
        gc.collect()
    assert private_bytes() - before < 80 * MIB


def test_arrays_of_any_size_stay_as_they_came_while_others_come_and_go():
    queue = gm.Queue(max_size_bytes=16 * MIB)
    random = np.random.default_rng(7)
    kept = {}
    for i in range(3000):
        size = int(2 ** random.uniform(8, 21))
        queue.put(np.full(size, i % 251, np.uint8))
        kept[int(random.integers(40))] = (i % 251, queue.get())
        if i % 100 == 0:
            assert all((array == value).all() for value, array in kept.values())


def little(queue, stop):
    while not stop.is_set():
        with suppress(Full):
            queue.put(b"x" * 900, timeout=0.1)


def take_one_by_one(queue, stop, much):
    while not stop.is_set():
        time.sleep(0.0005)  # slower than the producers
        with suppress(Empty):
            if len(queue.get(timeout=0.01)) > 1000:
                much.release()


def test_a_put_of_much_is_not_overtaken_for_ever_by_puts_of_little():
    queue = gm.Queue(max_size_bytes=60_000, serializer="raw")
    stop, much = fork.Event(), fork.Semaphore(0)
    others = [fork.Process(target=little, args=(queue, stop)) for _ in range(3)]
    others.append(fork.Process(target=take_one_by_one, args=(queue, stop, much)))
    for process in others:
        process.start()
    try:
        while queue.data_size() < 50_000:
            pass
        for _ in range(3):
            queue.put(bytes(50_000), timeout=60)
            assert much.acquire(timeout=60)
    finally:
        stop.set()
        for process in others:
            process.join(30)
            if process.is_alive():
                process.kill()
