"""Batches of a gm.Queue in place: views that look into the queue, and when their space is free again."""

import dataclasses
import gc
import multiprocessing
import os
import queue as pyqueue
import time

import numpy as np
import pytest

import gristmill as gm


@dataclasses.dataclass
class Step:
    observation: np.ndarray
    reward: float
    info: dict


def test_views_look_into_the_queue_until_the_batch_is_released():
    q = gm.Queue(max_size_bytes=4 << 20)
    large = np.arange(300_000, dtype=np.int64)
    q.put(large)
    q.put({"x": large[:5], "step": Step(large[:1000], 0.5, {})})
    batch = q.get_many(copy=False)
    assert len(batch) == 2
    assert not batch[0].flags.owndata
    np.testing.assert_array_equal(batch[0], large)
    np.testing.assert_array_equal(batch[1]["step"].observation, large[:1000])
    assert q.empty()
    assert q.data_size() > large.nbytes
    with pytest.raises(pyqueue.Full, match=rf"process {os.getpid()} keeps \d+ bytes \(2 messages taken"):
        q.put(large, timeout=0.05)
    assert q.holders()[0]["taken"] == 2
    batch.release()
    batch.release()
    with pytest.raises(ValueError, match="released"):
        batch[0]
    assert q.data_size() == 0
    q.put(large, timeout=10)


def test_a_view_that_outlives_its_batch_keeps_the_space():
    q = gm.Queue()
    q.put(np.arange(10_000))
    view = q.get_many(copy=False)[0]
    gc.collect()
    assert q.data_size() > 0
    np.testing.assert_array_equal(view, np.arange(10_000))
    del view
    gc.collect()
    assert q.data_size() == 0


def test_a_batch_not_released_by_a_dead_process_is_free_again():
    q = gm.Queue(max_size_bytes=256 << 10)
    q.put(np.zeros(200_000, np.uint8))
    reader, writer = os.pipe()

    def hold():
        batch = q.get_many(copy=False)
        os.write(writer, b"x")
        time.sleep(600)
        batch.release()

    child = multiprocessing.get_context("fork").Process(target=hold)
    child.start()
    assert os.read(reader, 1) == b"x"
    with pytest.raises(pyqueue.Full, match=f"process {child.pid} keeps"):
        q.put(np.zeros(200_000, np.uint8), timeout=0.1)
    child.kill()
    child.join(30)
    q.put(np.zeros(200_000, np.uint8), timeout=30)
    os.close(reader)
    os.close(writer)
