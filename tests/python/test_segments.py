"""Attaching, from Python, to what is no whole segment: a SegmentError with its reason, and no waiting."""

import os
import time

import numpy as np
import pytest

import gristmill as gm
from gristmill import _core


class Board:
    def __init__(self):
        self.name = gm.segment_name("segments-test", f"board{time.monotonic_ns()}")
        self.board = _core.RunBoard.create(self.name, 2)


def make_box():
    return gm.Box({"n": 0, "a": np.zeros(1000)})


KINDS = {
    "queue": (lambda: gm.Queue(max_size_bytes=10_000), lambda name, t: gm.Queue.attach(name, timeout=t)),
    "box": (make_box, lambda name, t: gm.Box.attach(name, timeout=t)),
    "read-only box": (make_box, lambda name, t: gm.Box.attach(name, timeout=t, readonly=True)),
    "board": (Board, lambda name, t: _core.RunBoard.attach(name, timeout=t)),
}


def cut_to(size):
    return lambda path: os.truncate(path, size)


def grow(path):
    os.truncate(path, os.path.getsize(path) + 4096)


def fill_with(byte):
    def fill(path):
        size = os.path.getsize(path)
        path_file = os.open(path, os.O_WRONLY)
        os.write(path_file, byte * size)
        os.close(path_file)

    return fill


def make_symlink(path):
    os.rename(path, path + ".moved")
    os.symlink(path + ".moved", path)


def make_pipe(path):
    os.unlink(path)
    os.mkfifo(path, 0o600)


DAMAGE = {
    "empty": (cut_to(0), "not_ready"),
    "a piece of a header": (cut_to(50), "corrupt"),
    "a header alone": (cut_to(4096), "corrupt"),
    "a piece": (cut_to(5000), "corrupt"),
    "grown": (grow, "corrupt"),
    "zeros": (fill_with(b"\0"), "not_ready"),
    "ones": (fill_with(b"\xff"), "corrupt"),
    "readable by others": (lambda path: os.chmod(path, 0o644), "not_permitted"),
    "a symbolic link": (make_symlink, "not_permitted"),
    "a pipe": (make_pipe, "not_permitted"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_no_whole_segment_is_refused_with_its_reason(kind, damage):
    make, attach = KINDS[kind]
    spoil, reason = DAMAGE[damage]
    made = make()
    path = f"/dev/shm{made.name}"
    try:
        spoil(path)
        with pytest.raises(gm.SegmentError) as caught:
            attach(made.name, 0.2)
        assert caught.value.reason == reason
        assert made.name in str(caught.value)
    finally:
        for left in (path, path + ".moved"):
            if os.path.lexists(left):
                os.unlink(left)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_a_segment_of_another_kind_is_refused(kind, other):
    if kind.split()[-1] == other.split()[-1]:
        pytest.skip("the same kind")
    made = KINDS[other][0]()
    with pytest.raises(gm.SegmentError) as caught:
        KINDS[kind][1](made.name, 1)
    assert caught.value.reason == "wrong_kind"


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_that_nobody_can_have_made_is_a_value_error(kind):
    for name in ("", "nonsense", "/etc/passwd", "/gristmill.1-1-1.run", "/gristmill.x-y-z.run.part"):
        with pytest.raises(ValueError, match="segment's name"):
            KINDS[kind][1](name, 1)
