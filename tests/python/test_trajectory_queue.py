"""The trajectory queue from Python: arrays in place, waiting, other processes."""

import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import gristmill as gm

FIELDS = {"observations": ("float32", (3, 4)), "rewards": ("float32", 3), "version": ("int64", ())}


@pytest.fixture
def queue(request):
    made = gm.TrajectoryQueue.create(
        gm.segment_name("test", request.node.name[:60].replace("[", "-").replace("]", "")), FIELDS, 8
    )
    yield made
    made.unlink()


def trajectory(number):
    return {
        "observations": np.full((3, 4), number, np.float32),
        "rewards": np.arange(3, dtype=np.float32) + number,
        "version": number,
    }


def trajectories(numbers):
    return {name: np.stack([np.asarray(trajectory(n)[name]) for n in numbers]) for name in FIELDS}


def test_what_goes_in_comes_out_in_order_as_views(queue):
    queue.put(trajectory(1))
    assert queue.put_many(trajectories([2, 3])) == 2
    assert len(queue) == 3
    with queue.get_many(3) as batch:
        assert len(batch) == 3
        assert batch.keys() == list(FIELDS)
        assert batch["version"].tolist() == [1, 2, 3]
        assert batch["observations"].shape == (3, 3, 4)
        assert batch["observations"].dtype == np.float32
        assert not batch["observations"].flags.owndata
        np.testing.assert_array_equal(batch["rewards"][1], [2, 3, 4])
    assert len(queue) == 0
    assert queue.statistics().gets == 3


def test_places_stay_taken_while_a_batch_or_one_of_its_arrays_lives(queue):
    queue.put_many(trajectories(range(8)))
    versions = queue.get_many(8)["version"]
    gc.collect()
    with pytest.raises(TimeoutError):
        queue.put(trajectory(9), timeout=0)
    assert versions.tolist() == list(range(8))
    del versions
    gc.collect()
    queue.put(trajectory(9), timeout=0)


def test_a_released_batch_is_refused(queue):
    queue.put(trajectory(0))
    batch = queue.get_many(1)
    batch.release()
    batch.release()
    with pytest.raises(ValueError, match="released"):
        batch["version"]
    with pytest.raises(KeyError, match="expected one of: observations, rewards, version"):
        batch["reward"]


def test_an_array_outlives_the_queue_object():
    queue = gm.TrajectoryQueue.create(gm.segment_name("test", "outlive"), FIELDS, 2)
    queue.put(trajectory(5))
    rewards = queue.get_many(1)["rewards"]
    del queue
    gc.collect()
    np.testing.assert_array_equal(rewards, [[5, 6, 7]])


def test_wrong_fields_are_named(queue):
    good = trajectory(0)
    with pytest.raises(KeyError, match="field 'version' is missing; expected int64"):
        queue.put({name: good[name] for name in ("observations", "rewards")})
    with pytest.raises(KeyError, match="no field 'reward'"):
        queue.put({**good, "reward": 1})
    with pytest.raises(TypeError, match=r"field 'rewards': expected float32 \[3\], got float64 \[3\]"):
        queue.put({**good, "rewards": np.zeros(3)})
    with pytest.raises(TypeError, match=r"field 'rewards': expected float32 \[3\], got shape \[4\]"):
        queue.put({**good, "rewards": np.zeros(4, np.float32)})
    with pytest.raises(TypeError, match="field 'rewards'"):
        queue.put({**good, "rewards": "many"})
    with pytest.raises(ValueError, match="'rewards' has 2 entries, 'observations' has 3"):
        queue.put_many({**trajectories(range(3)), "rewards": np.zeros((2, 3), np.float32)})
    assert len(queue) == 0


def test_lists_and_strided_arrays_are_copied_in(queue):
    wide = np.arange(24, dtype=np.float32).reshape(3, 8)
    queue.put({"observations": wide[:, ::2], "rewards": [1, 2, 3], "version": 4})
    with queue.get_many(1) as batch:
        np.testing.assert_array_equal(batch["observations"][0], wide[:, ::2])
        assert batch["rewards"].tolist() == [[1, 2, 3]]


def test_bad_specifications_are_refused():
    name = gm.segment_name("test", "bad")
    with pytest.raises(TypeError, match="expected \\(dtype, shape\\)"):
        gm.TrajectoryQueue.create(name, {"a": "float32"}, 1)
    with pytest.raises(ValueError, match="float31"):
        gm.TrajectoryQueue.create(name, {"a": ("float31", ())}, 1)
    with pytest.raises(ValueError):
        gm.TrajectoryQueue.create(name, {}, 1)
    with pytest.raises(ValueError):
        gm.TrajectoryQueue.create(name, FIELDS, 0)
    assert name not in [segment.name for segment in gm.list_segments()]


def test_a_queue_that_does_not_fit_says_what_it_needs():
    fields = {"a": ("float64", (1 << 20,))}
    capacity = gm.shared_memory_available() // (8 << 20) + 64
    with pytest.raises(
        gm.SegmentError, match=str(gm.TrajectoryQueue.bytes_needed(fields, capacity))[:4]
    ) as caught:
        gm.TrajectoryQueue.create(gm.segment_name("test", "huge"), fields, capacity)
    assert caught.value.reason == "no_space"


def test_attaching_to_nothing_is_an_error():
    with pytest.raises(gm.SegmentError) as caught:
        gm.TrajectoryQueue.attach(gm.segment_name("test", "none"), timeout=0)
    assert caught.value.reason == "not_found"


def test_full_and_empty_time_out(queue):
    with pytest.raises(TimeoutError, match="0 of the 1"):
        queue.get_many(1, timeout=0.01)
    assert queue.put_many(trajectories(range(10)), timeout=0.01) == 8
    with pytest.raises(TimeoutError, match="stayed full"):
        queue.put(trajectory(0), timeout=0.01)
    with pytest.raises(ValueError, match="NaN"):
        queue.get_many(1, timeout=float("nan"))
    with pytest.raises(ValueError):
        queue.get_many(9)


def test_close_ends_waiting_and_leaves_the_rest(queue):
    queue.put(trajectory(1))
    queue.close()
    assert queue.closed
    with pytest.raises(gm.QueueClosed):
        queue.put(trajectory(2))
    with queue.get_many(4) as batch:
        assert batch["version"].tolist() == [1]
    with pytest.raises(gm.QueueClosed):
        queue.get_many(1)


def test_other_threads_run_while_one_waits(queue):
    got = []
    waiter = threading.Thread(target=lambda: got.append(queue.get_many(2)["version"].tolist()))
    waiter.start()
    queue.put(trajectory(1))
    queue.put(trajectory(2))
    waiter.join(20)
    assert got == [[1, 2]]


def _produce(queue, first, count):
    for number in range(first, first + count):
        queue.put(trajectory(number), timeout=30)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_producers_in_other_processes(queue, method):
    context = multiprocessing.get_context(method)
    producers = [context.Process(target=_produce, args=(queue, 100 * p, 20)) for p in range(3)]
    for producer in producers:
        producer.start()
    seen = []
    for _ in range(30):
        with queue.get_many(2, timeout=30) as batch:
            seen += batch["version"].tolist()
    for producer in producers:
        producer.join(30)
        assert producer.exitcode == 0
    assert sorted(seen) == sorted(100 * p + i for p in range(3) for i in range(20))
    for p in range(3):
        mine = [number for number in seen if number // 100 == p]
        assert mine == sorted(mine)


def test_a_forked_childs_end_frees_nothing_of_the_parents(queue):
    queue.put_many(trajectories(range(8)))
    batch = queue.get_many(8)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=lambda: None)
    child.start()
    child.join(30)
    with pytest.raises(TimeoutError):
        queue.put(trajectory(9), timeout=0)
    assert batch["version"].tolist() == list(range(8))
    batch.release()
    assert queue.name in [segment.name for segment in gm.list_segments()]


def test_pickling_attaches(queue):
    queue.put(trajectory(3))
    other = pickle.loads(pickle.dumps(queue))
    assert other.name == queue.name
    assert other.fields == queue.fields
    assert len(other) == 1


WAITER = """
import sys
import gristmill as gm
queue = gm.TrajectoryQueue.attach(sys.argv[1])
print("waiting", flush=True)
try:
    queue.get_many(1)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_waiting(queue):
    process = subprocess.Popen(
        [sys.executable, "-c", WAITER, queue.name], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout.readline() == "waiting\n"
        deadline = time.monotonic() + 30
        # Until it waits: a signal that comes just before does the same.
        while queue.statistics().get_waits == 0 and time.monotonic() < deadline:
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGINT)
        assert process.communicate(timeout=30)[0] == "interrupted\n"
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
