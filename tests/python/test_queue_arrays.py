"""Arrays through a gm.Queue: of every kind and stride, copied once, and what is kept of their memory."""

import gc
import subprocess
import sys
import tracemalloc
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import gristmill as gm

MIB = 1 << 20


@dataclass
class Sample:
    """Not plain: it pickles, with its arrays out of band."""

    name: str
    array: Any


ARRAYS = {
    "contiguous": np.arange(600, dtype=np.float32).reshape(20, 30),
    "fortran": np.asfortranarray(np.arange(600.0).reshape(20, 30)),
    "strided": np.arange(6000.0).reshape(60, 100)[::3, ::-2],
    "empty": np.zeros((3, 0, 2), np.int16),
    "scalar": np.array(7, np.uint8),
    "bool": np.array([True, False]),
    "half": np.ones(1000, np.float16),
    "complex": np.full(5, 1 + 2j),
    "big endian": np.arange(2000, dtype=">i4"),
    "structured": np.zeros(300, dtype=[("a", "i4"), ("b", "f8", (2,))]),
    "objects": np.array([1, "two", None], dtype=object),
    "text": np.array(["a", "bc"]),
    "large": np.arange(300_000, dtype=np.int64),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_every_kind(name):
    array = ARRAYS[name]
    queue = gm.Queue()
    for message in (array, {"nested": [array, 1]}, Sample("name", array)):
        queue.put(message)
    got = queue.get_many()
    for one in (got[0], got[1]["nested"][0], got[2].array):
        np.testing.assert_array_equal(one, array)
        assert one.dtype == array.dtype
        assert one.flags.f_contiguous == array.flags.f_contiguous or name == "strided"
        assert one.flags.writeable
    read_only = array.copy()
    read_only.flags.writeable = False
    queue.put(read_only)
    np.testing.assert_array_equal(queue.get(), read_only)


def test_torch_tensors_are_copied_with_their_type():
    torch = pytest.importorskip("torch")
    queue = gm.Queue()
    tensors = [
        torch.arange(2000, dtype=torch.float32).reshape(40, 50).t(),
        torch.ones(3, 4, dtype=torch.bfloat16),
        torch.zeros(0, 5),
        torch.ones(2, requires_grad=True),
        torch.nn.Parameter(torch.ones(2)),
        torch.tensor(3),
    ]
    queue.put_many(tensors)
    for sent, got in zip(tensors, queue.get_many(), strict=True):
        assert type(got) is type(sent)
        assert got.dtype == sent.dtype
        assert got.requires_grad == sent.requires_grad
        assert torch.equal(got, sent)
    sent = torch.zeros(5000)
    queue.put(sent)
    queue.get().add_(1)
    assert sent.sum() == 0


def test_a_reader_changed_by_another_keeps_its_own():
    queue = gm.Queue()
    sent = np.zeros(50_000)
    queue.put(sent)
    got = queue.get()
    got += 1
    queue.put(sent)
    assert not queue.get().any()
    assert got.all()


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


def test_a_reader_keeps_no_memory_of_a_large_message():
    script = """
import gc, re
import gristmill as gm, numpy as np
def resident():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
queue = gm.Queue(max_size_bytes=110 << 20)
before = resident()
queue.put(np.ones(100 << 20, np.uint8)); a = queue.get(); assert a.sum() == 100 << 20; del a; gc.collect()
queue.put(b"x" * (100 << 20)); a = queue.get(); del a; gc.collect()
queue.put((1,)); queue.get_many()
print((resident() - before) >> 20)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40


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
