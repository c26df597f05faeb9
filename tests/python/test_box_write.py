"""Writing the box: updates and write blocks are one version or none, and a dead writer leaves none."""

import multiprocessing
import os
import signal
import threading

import numpy as np
import pytest

import gristmill as gm


def test_an_update_is_one_version_over_scalars_and_arrays(box):
    assert box.update(lr=0.5, step=3) == 2
    assert box.update(step=4, phase="run", weights=np.full((2, 3), 2, "f4")) == 3
    snapshot = box.snapshot()
    assert (snapshot.lr, snapshot.step, snapshot.phase, snapshot.version) == (0.5, 4, "run", 3)
    assert snapshot.weights.min() == 2


def test_a_refused_update_changes_nothing(box):
    with pytest.raises(TypeError, match="'step': expected int, got str"):
        box.update(lr=0.5, step="x")
    with pytest.raises(AttributeError, match="no field 'lrr'; expected one of: lr, step"):
        box.update(lrr=0.5)
    assert box.version == 1
    assert box.lr == 3e-4


def test_a_write_block_is_one_version_or_none(box):
    with box.write() as w:
        w.step += 1
        w.lr = w.step / 2
        w.weights = np.full((2, 3), 8, "f4")
        assert box.step == 0
        assert w.step == 1
    assert (box.version, box.step, box.lr, box.weights.min()) == (2, 1, 0.5, 8)

    def change_my_mind():
        with box.write() as w:
            w.step = 99
            raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError, match="changed my mind"):
        change_my_mind()
    assert (box.version, box.step) == (2, 1)
    box.step = 2


def _add(box, times):
    for _ in range(times):
        with box.write() as w:
            w.step += 1


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_write_blocks_of_several_processes_take_turns(box, method):
    context = multiprocessing.get_context(method)
    writers = [context.Process(target=_add, args=(box, 200)) for _ in range(2)]
    for writer in writers:
        writer.start()
    _add(box, 200)
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert box.step == 600


def _die_writing(box):
    with box.write() as w:
        w.step = 5
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_writer_killed_in_its_block_leaves_the_version_before_and_frees_the_turn(box):
    child = multiprocessing.get_context("fork").Process(target=_die_writing, args=(box,))
    child.start()
    child.join(30)
    assert child.exitcode == -signal.SIGKILL
    assert box.step == 0
    box.step = 6
    assert box.update(weights=np.zeros((2, 3), "f4"), step=7) == 3


def test_no_snapshot_mixes_two_updates():
    box = gm.Box(a=0, b=0, data=np.zeros(500, "i8"))
    done = threading.Event()

    def write():
        number = 0
        while not done.is_set():
            number += 1
            if number % 2:
                box.update(a=number, b=number, data=np.full(500, number))
            else:
                with box.write() as w:
                    w.a = w.b = number
                    w.data = np.full(500, number)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reader = gm.Box.attach(box.name, readonly=True)
        for _ in range(1000):
            for each in (box, reader):
                snapshot = each.snapshot()
                assert snapshot.a == snapshot.b
                assert snapshot.data.min() == snapshot.data.max() == snapshot.a
    finally:
        done.set()
        writer.join(30)
