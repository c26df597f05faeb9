"""Attaching to a box: read-only, and to what is none."""

import multiprocessing
import threading

import pytest

import gristmill as gm


def _read_only_child(name, answers):
    box = gm.Box.attach(name, readonly=True)
    answers.put((box.step, box.weights.tolist()))
    for use in (lambda: box.update(step=1), lambda: setattr(box, "step", 1), box.pin, box.write):
        with pytest.raises(PermissionError) as raised:
            use()
        answers.put(str(raised.value))
    answers.put(box.watch(box.version, timeout=30))
    answers.put(box.snapshot().step)


def test_a_read_only_box_reads_and_watches_and_refuses_the_rest(box):
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    child = context.Process(target=_read_only_child, args=(box.name, answers))
    child.start()
    assert answers.get(timeout=60) == (0, [[0, 1, 2], [3, 4, 5]])
    for _ in range(4):
        assert "read-only" in answers.get(timeout=30)
    done = threading.Event()

    def write():
        while not done.wait(0.05):
            box.step = 9

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert answers.get(timeout=30) >= 2
        assert answers.get(timeout=30) == 9
    finally:
        done.set()
        writer.join()
    child.join(30)


def test_attaching_to_something_else_is_a_typed_error():
    queue = gm.TrajectoryQueue.create(gm.segment_name("test", "not-a-box"), {"a": ("float32", (2,))}, 4)
    with pytest.raises(gm.SegmentError) as raised:
        gm.Box.attach(queue.name)
    assert raised.value.reason == "wrong_kind"
    with pytest.raises(gm.SegmentError):
        gm.Box.attach(gm.segment_name("test", "nobody"), timeout=0.01)
