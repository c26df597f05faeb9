"""The box from Python: versions, pins, watching, other processes."""

import gc
import multiprocessing
import pickle
import threading

import numpy as np
import pytest

import gristmill as gm

FIELDS = {"weights": ("float32", (2, 3)), "step": ("int64", ())}


@pytest.fixture
def box(request):
    made = gm.Box.create(gm.segment_name("test", request.node.name[:60]), FIELDS)
    yield made
    made.unlink()


def content(number):
    return {"weights": np.full((2, 3), number, np.float32), "step": number}


def test_a_publish_is_the_next_version(box):
    assert box.version == 0
    assert box.publish(content(7)) == 1
    assert box.version == 1
    version, arrays = box.read()
    assert version == 1
    assert arrays["step"] == 7
    np.testing.assert_array_equal(arrays["weights"], np.full((2, 3), 7))
    assert box.fields == FIELDS


def test_a_pin_keeps_its_version_in_place(box):
    box.publish(content(1))
    with box.pin() as pin:
        for number in range(2, 10):
            box.publish(content(number))
        assert pin.version == 1
        assert pin["step"] == 1
        assert pin["weights"].max() == 1
        assert not pin["weights"].flags.writeable
        assert not pin["weights"].flags.owndata
    with pytest.raises(ValueError, match="released"):
        pin["step"]
    assert box.pin()["step"] == 9


def test_an_array_keeps_its_pin(box):
    box.publish(content(1))
    weights = box.pin()["weights"]
    gc.collect()
    for number in range(2, 10):
        box.publish(content(number))
    assert weights.max() == 1


def test_every_slot_pinned_is_an_error_that_says_so(box):
    pins = []
    for number in range(3):
        box.publish(content(number))
        pins.append(box.pin())
    box.publish(content(3))
    with pytest.raises(RuntimeError, match="Release pins"):
        box.publish(content(4))
    assert box.skipped_publishes == 1
    pins[0].release()
    assert box.publish(content(4)) == 5


def test_read_into_fills_what_is_asked_for(box):
    box.publish(content(3))
    weights = np.zeros((2, 3), np.float32)
    assert box.read_into({"weights": weights}) == 1
    assert weights.min() == 3
    with pytest.raises(TypeError, match=r"field 'weights': expected float32 \[2, 3\]"):
        box.read_into({"weights": np.zeros((2, 3))})
    with pytest.raises(ValueError, match="contiguous"):
        box.read_into({"weights": np.zeros((3, 2), np.float32).T})


def test_watch_waits_for_a_newer_version(box):
    with pytest.raises(TimeoutError, match="no version after 0"):
        box.watch(0, timeout=0.01)
    seen = []
    watcher = threading.Thread(target=lambda: seen.append(box.watch(0, timeout=30)))
    watcher.start()
    box.publish(content(1))
    watcher.join(30)
    assert seen == [1]


def _echo(box, answers):
    version = 0
    while True:
        version = box.watch(version, timeout=30)
        with box.pin() as pin:
            number = int(pin["step"])
            assert pin["weights"].min() == pin["weights"].max() == number
            answers.put(number)
        if number < 0:
            return


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_readers_in_other_processes(method):
    box = gm.Box.create(gm.segment_name("test", f"readers-{method}"), FIELDS)
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    reader = context.Process(target=_echo, args=(box, answers))
    reader.start()
    for number in (4, 5, -1):
        box.publish(content(number))
        assert answers.get(timeout=30) == number
    reader.join(30)
    assert reader.exitcode == 0


def test_pickling_attaches(box):
    box.publish(content(3))
    other = pickle.loads(pickle.dumps(box))
    other.publish(content(4))
    assert box.read()[1]["step"] == 4
