"""One contestant of `gristmill bench box`: measures what it can do, and prints RESULT {name: seconds}.

    python run_box.py gristmill|sharedbox|multiprocessing|memcpy

Runs in the contestant's own environment, so it imports nothing of gristmill's benchmarks.
"""

import json
import multiprocessing as mp
import os
import sys
import time
from multiprocessing import shared_memory
from typing import Annotated

import numpy as np

MIB = 1 << 20
SIZES = {"1 MiB": MIB, "100 MiB": 100 * MIB}


def per_call(body, calls, rounds=5):
    """Seconds per call, the quickest round's: whatever else runs on the machine only adds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            body()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def quick(code, names, calls=100_000, rounds=5):
    """As per_call for a statement, without the call around it."""
    import timeit

    return min(timeit.repeat(code, globals=names, number=calls, repeat=rounds)) / calls


# The same words for ours and sharedbox.
SCALAR_CALLS = {
    "read a number": "box.lr",
    "read a short string": "box.phase",
    "write a number": "box.lr = 0.5",
    "update two fields": "box.update(lr=0.5, step=3)",
    "snapshot of three": "box.snapshot()",
}


def array_calls(size):
    return max(3, 400 * MIB // size // 8)


def gristmill():
    import gristmill as gm

    result = {}
    box = gm.Box(lr=3e-4, step=0, phase="warmup")
    names = {"box": box}
    result |= {label: quick(code, names) for label, code in SCALAR_CALLS.items()}
    for label, size in SIZES.items():
        source, out = np.ones(size, "u1"), np.zeros(size, "u1")
        with gm.Box(data=source) as large:
            result[f"{label}: write"] = per_call(
                lambda b=large, s=source: b.update(data=s), array_calls(size)
            )
            result[f"{label}: read_into"] = per_call(
                lambda b=large, o=out: b.read_into("data", o), array_calls(size)
            )
            result[f"{label}: fresh read"] = per_call(lambda b=large: b.data, array_calls(size) // 4 + 1)
            result[f"{label}: pin"] = per_call(lambda b=large: b.pin("data").__enter__(), 2000)
    half = np.ones(5 * MIB, "u1")
    two = gm.Box(a=half, b=half)
    targets = {"a": half.copy(), "b": half.copy()}
    result["10 MiB in two arrays: consistent read"] = per_call(lambda: two.read_into(targets), 20)
    return result


def sharedbox():
    from sharedbox import Capacity, DType, Shape, SharedBox

    class Small(SharedBox):
        lr: float = 3e-4
        step: int = 0
        phase: Annotated[str, Capacity(64)] = "warmup"

    result = {}
    box = Small.create(f"bench{os.getpid()}")
    names = {"box": box}
    result |= {label: quick(code, names) for label, code in SCALAR_CALLS.items()}
    box.close()
    Small.unlink(f"bench{os.getpid()}")
    for label, size in SIZES.items():
        source, out = np.ones(size, "u1"), np.zeros(size, "u1")

        class Large(SharedBox):
            data: Annotated[np.ndarray, Shape(size), DType("uint8")]

        large = Large.create(f"benchl{os.getpid()}", source)
        result[f"{label}: write"] = per_call(
            lambda b=large, s=source: setattr(b, "data", s), array_calls(size)
        )
        result[f"{label}: read_into"] = per_call(
            lambda b=large, o=out: b.read_into("data", o), array_calls(size)
        )
        result[f"{label}: fresh read"] = per_call(lambda b=large: b.data, array_calls(size) // 4 + 1)
        large.close()
        Large.unlink(f"benchl{os.getpid()}")
    return result


def multiprocessing():
    result = {}
    value = mp.Value("d", 0.5)
    result["read a number"] = quick("value.value", {"value": value})
    result["write a number"] = quick("value.value = 0.5", {"value": value})
    with mp.Manager() as manager:
        space = manager.Namespace()
        space.lr = 0.5
        result["read a number, Manager().Namespace()"] = quick("space.lr", {"space": space}, 300, 3)
        result["write a number, Manager().Namespace()"] = quick("space.lr = 0.5", {"space": space}, 300, 3)
    lock = mp.Lock()
    for label, size in SIZES.items():
        source, out = np.ones(size, "u1"), np.zeros(size, "u1")
        memory = shared_memory.SharedMemory(create=True, size=size)
        try:
            shared = np.frombuffer(memory.buf, "u1", size)

            def write(to=shared, s=source):
                with lock:
                    to[:] = s

            def read(o=out, frm=shared):
                with lock:
                    o[:] = frm

            def fresh(frm=shared):
                with lock:
                    return frm.copy()

            result[f"{label}: write"] = per_call(write, array_calls(size))
            result[f"{label}: read_into"] = per_call(read, array_calls(size))
            result[f"{label}: fresh read"] = per_call(fresh, array_calls(size) // 4 + 1)
            del shared, write, read, fresh
        finally:
            memory.close()
            memory.unlink()
    return result


def memcpy():
    result = {}
    for label, size in SIZES.items():
        source, out = np.ones(size, "u1"), np.zeros(size, "u1")
        copied = per_call(lambda o=out, s=source: np.copyto(o, s), array_calls(size))
        result[f"{label}: write"] = result[f"{label}: read_into"] = copied
    sources = np.ones(5 * MIB, "u1"), np.ones(5 * MIB, "u1")
    targets = sources[0].copy(), sources[1].copy()

    def both():
        for target, source in zip(targets, sources, strict=True):
            np.copyto(target, source)

    result["10 MiB in two arrays: consistent read"] = per_call(both, 20)
    return result


if __name__ == "__main__":
    # By name, so that nothing but the contestants can be called.
    known = {f.__name__: f for f in (gristmill, sharedbox, multiprocessing, memcpy)}
    print("RESULT " + json.dumps(known[sys.argv[1]]()))
