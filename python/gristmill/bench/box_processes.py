"""What the box costs between processes: contention, watching, published to usable, resident memory."""

from __future__ import annotations

import multiprocessing as mp
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import gristmill as gm

_SPAWN = mp.get_context("spawn")


def _write_box(box: gm.Box, ready: Any, go: Any, seconds: float, counts: Any, index: int) -> None:
    ready.release()
    go.wait()
    end, done = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for _ in range(200):
            box.step = done
        done += 200
    counts[index] = done


def _read_box(box: gm.Box, ready: Any, go: Any, seconds: float, counts: Any, index: int) -> None:
    ready.release()
    go.wait()
    end, done = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for _ in range(200):
            box.step  # noqa: B018
        done += 200
    counts[index] = done


def _write_value(value: Any, ready: Any, go: Any, seconds: float, counts: Any, index: int) -> None:
    ready.release()
    go.wait()
    end, done = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for _ in range(200):
            value.value = done
        done += 200
    counts[index] = done


def _read_value(value: Any, ready: Any, go: Any, seconds: float, counts: Any, index: int) -> None:
    ready.release()
    go.wait()
    end, done = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for _ in range(200):
            value.value  # noqa: B018
        done += 200
    counts[index] = done


def _crowd(shared: Any, write: Callable, read: Callable, writers: int, readers: int, seconds: float):
    ready, go = _SPAWN.Semaphore(0), _SPAWN.Event()
    counts = _SPAWN.Array("q", writers + readers, lock=False)
    processes = [
        _SPAWN.Process(target=write if i < writers else read, args=(shared, ready, go, seconds, counts, i))
        for i in range(writers + readers)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        if not ready.acquire(timeout=60):
            raise TimeoutError("a process of the benchmark did not start within 60 s")
    go.set()
    for process in processes:
        process.join(60)
    return sum(counts[:writers]) / seconds, sum(counts[writers:]) / seconds


def contention(seconds: float = 0.5) -> dict[str, dict[str, float]]:
    """Writes and reads a second, all processes together, of 1, 2 and 4 writers × 0 and 2 readers."""
    result = {}
    for writers in (1, 2, 4):
        for readers in (0, 2):
            box, value = gm.Box(step=0), _SPAWN.Value("q", 0)
            ours = _crowd(box, _write_box, _read_box, writers, readers, seconds)
            theirs = _crowd(value, _write_value, _read_value, writers, readers, seconds)
            result[f"{writers} × {readers}"] = {
                "gristmill writes/s": ours[0],
                "gristmill reads/s": ours[1],
                "mp.Value writes/s": theirs[0],
                "mp.Value reads/s": theirs[1],
            }
    return result


def _answer_box(there: gm.Box, back: gm.Box, rounds: int, spin: float | None) -> None:
    for seen in range(1, rounds + 1):
        there.watch(seen, 60, spin=spin)
        back.step = seen


def _ask_box(rounds: int, spin: float | None) -> list[float]:
    there, back = gm.Box(step=0), gm.Box(step=0)
    child = _SPAWN.Process(target=_answer_box, args=(there, back, rounds, spin))
    child.start()
    times = []
    for seen in range(1, rounds + 1):
        start = time.perf_counter()
        there.step = seen
        back.watch(seen, 60, spin=spin)
        times.append(time.perf_counter() - start)
    child.join(60)
    return times


def _answer_pipe(pipe: Any, rounds: int) -> None:
    for _ in range(rounds):
        pipe.send_bytes(pipe.recv_bytes())


def _ask_pipe(rounds: int) -> list[float]:
    mine, other = _SPAWN.Pipe()
    child = _SPAWN.Process(target=_answer_pipe, args=(other, rounds))
    child.start()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        mine.send_bytes(b"x")
        mine.recv_bytes()
        times.append(time.perf_counter() - start)
    child.join(60)
    return times


def _answer_event(there: Any, back: Any, rounds: int) -> None:
    for _ in range(rounds):
        there.wait()
        there.clear()
        back.set()


def _ask_event(rounds: int) -> list[float]:
    there, back = _SPAWN.Event(), _SPAWN.Event()
    child = _SPAWN.Process(target=_answer_event, args=(there, back, rounds))
    child.start()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        there.set()
        back.wait()
        back.clear()
        times.append(time.perf_counter() - start)
    child.join(60)
    return times


def round_trips(rounds: int = 2000) -> dict[str, dict[str, float]]:
    """Seconds from a write to the answer of another process that watches: p50 and p99."""
    measured = {
        "gristmill, asleep": lambda: _ask_box(rounds, 0.0),
        "gristmill, spin budget 20 ms": lambda: _ask_box(rounds, 0.02),
        "mp.Pipe": lambda: _ask_pipe(rounds),
        "mp.Event": lambda: _ask_event(rounds),
    }
    # The first answers include the child's start.
    return {label: _percentiles(ask()[rounds // 10 :]) for label, ask in measured.items()}


def _percentiles(times: list[float]) -> dict[str, float]:
    p50, p99 = np.percentile(times, [50, 99])
    return {"p50": float(p50), "p99": float(p99)}


def _use(box: gm.Box, pipe: Any, rounds: int, how: str) -> None:
    out = np.empty(box.fields["data"][1], "u1")
    box.read_into("data", out)
    version = box.version
    pipe.send(None)
    for _ in range(rounds):
        if how == "awake":
            pipe.recv()  # knows of the version already; only what it costs to use it is counted
        else:
            version = box.watch(version, 60)
        start = time.perf_counter()
        if how == "copied":
            box.read_into("data", out)
            usable = time.perf_counter()
        else:
            with box.pin("data") as data:
                usable = time.perf_counter()
                assert data[-1] == data[0]
        pipe.send((start, usable))


def published_to_usable(rounds: int = 15) -> dict[str, dict[str, float]]:
    """Seconds until a worker can use a version. "pinned" and "copied": from the return of the call that
    publishes it, by a worker that sleeps in watch() until then. "pin alone": what a worker pays that looks
    for a new version between two steps, with the publisher's copy having swept the caches."""
    result = {}
    for label, size in (
        ("64 KiB", 1 << 16),
        ("1 MiB", 1 << 20),
        ("10 MiB", 10 << 20),
        ("100 MiB", 100 << 20),
    ):
        row = {}
        for name, how in (("pinned", "asleep"), ("pin alone", "awake"), ("copied", "copied")):
            box, data = gm.Box(data=np.zeros(size, "u1")), np.ones(size, "u1")
            mine, other = _SPAWN.Pipe()
            child = _SPAWN.Process(target=_use, args=(box, other, rounds, how))
            child.start()
            mine.recv()
            times = []
            for _ in range(rounds):
                time.sleep(0.002)  # asleep by now
                box.update(data=data)
                published = time.perf_counter()
                if how == "awake":
                    mine.send(None)
                start, usable = mine.recv()
                times.append(usable - (start if how == "awake" else published))
            child.join(60)
            # The wake is sent just before the call returns.
            row[name] = max(0.0, float(np.median(times)))
            box.close()
        result[label] = row
    return result


def _hold(box: gm.Box, pipe: Any, pinned: bool) -> None:
    held = box.pin() if pinned else box.read()
    if pinned:
        held["data"].sum()
    pipe.send(_private_bytes())
    pipe.recv()


def _private_bytes() -> int:
    total = 0
    with open("/proc/self/smaps_rollup") as file:
        for line in file:
            if line.startswith(("Private_Clean:", "Private_Dirty:")):
                total += int(line.split()[1]) << 10
    return total


def resident_memory(workers: int = 4, parameters: int = 25_000_000) -> dict[str, float]:
    """Bytes for one policy's float32 parameters and `workers` that use them: the box with its slots, and what
    each worker has of its own beyond one that holds nothing."""
    box = gm.Box(data=np.ones(parameters, "f4"))
    empty = gm.Box(data=np.ones(1, "f4"))
    own = {}
    for how, which, pinned in (("nothing", empty, True), ("pinned", box, True), ("copied", box, False)):
        pipes = [_SPAWN.Pipe() for _ in range(workers)]
        children = [_SPAWN.Process(target=_hold, args=(which, other, pinned)) for _, other in pipes]
        for child in children:
            child.start()
        own[how] = sum(mine.recv() for mine, _ in pipes)
        for mine, _ in pipes:
            mine.send(None)
        for child in children:
            child.join(60)
    return {
        "box": 4.0 * parameters * 4,
        "workers pinned": max(0.0, own["pinned"] - own["nothing"]),
        "workers copied": max(0.0, own["copied"] - own["nothing"]),
    }
