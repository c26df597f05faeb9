"""gm.Box or sharedbox between processes, one of `gristmill bench box`: prints RESULT {part: {row: value}}.

    python run_box_shared.py gristmill|sharedbox [seconds of the reader's part]

Runs in the contestant's own environment, so it imports nothing of gristmill's benchmarks.
"""

import json
import os
import random
import signal
import sys
import time
from statistics import median
from typing import Annotated

import numpy as np

MIB = 1 << 20
LARGE = 10 * MIB
WATCHERS = (0, 8, 64, 256)
KILLS = {"gristmill": 40, "sharedbox": 6}  # each costs sharedbox its lock's time-out


class Gristmill:
    """gm.Box, with the calls that both have."""

    Blocked = TimeoutError

    def __init__(self):
        import gristmill as gm

        self.gm = gm

    def small(self):
        return self.gm.Box(ping=0, pong=0)

    def large(self, size):
        return self.gm.Box(data=np.zeros(size, "u1"))

    def write(self, box, data):
        box.update(data=data)

    def other(self, box):
        return box  # a forked child uses it as it is

    def values(self, box, field):
        """The field after each change of the box from now on."""

        def changes(version):
            while True:
                version = box.watch(version, 60)
                yield getattr(box, field)

        return changes(box.version)

    def unblock(self, box):
        pass

    def end(self, box):
        box.close()


class Sharedbox:
    Blocked = TimeoutError

    def __init__(self):
        from sharedbox import DType, LockTimeoutError, Shape, SharedBox

        self.Blocked = LockTimeoutError
        self.classes = {}

        class Small(SharedBox, max_waiters=512):
            ping: int = 0
            pong: int = 0

        def make(size, lock_timeout):
            class Large(SharedBox, lock_timeout=lock_timeout):
                data: Annotated[np.ndarray, Shape(size), DType("uint8")]

            return Large

        self._small, self._large, self._made = Small, make, 0
        self.lock_timeout = 5.0

    def _name(self):
        self._made += 1
        return f"bench{os.getpid()}-{self._made}"

    def small(self):
        box = self._small.create(self._name())
        self.classes[box.name] = self._small
        return box

    def large(self, size):
        kind = self._large(size, self.lock_timeout)
        box = kind.create(self._name(), np.zeros(size, "u1"))
        self.classes[box.name] = kind
        return box

    def write(self, box, data):
        box.data = data

    def other(self, box):
        return self.classes[box.name].attach(box.name)

    def values(self, box, field):
        return iter(box.watch(field))

    def unblock(self, box):
        box.force_unlock()

    def end(self, box):
        name, kind = box.name, self.classes[box.name]
        box.close()
        kind.unlink(name)


def forked(body):
    """The pid of a child that runs `body`; it writes one byte to its argument when it is ready."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            body(writing)
        finally:
            os._exit(0)
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)
    return pid


def killed(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def watchers(peer):
    """Seconds of one write while so many processes sleep in a watch."""
    result = {}
    for count in WATCHERS:
        box = peer.small()

        def watch(ready, box=box):
            mine = peer.other(box)
            values = peer.values(mine, "ping")
            os.write(ready, b"x")
            for _ in values:
                pass

        children = []
        try:
            children.extend(forked(watch) for _ in range(count))
            times = []
            for number in range(15):
                # All asleep again: they need some ms, and a woken one little of it.
                time.sleep(0.02 + count * 0.001)
                start = time.perf_counter()
                box.ping = number + 1
                times.append(time.perf_counter() - start)
            result[str(count)] = median(times[3:])
        finally:
            for child in children:
                killed(child)
        peer.end(box)
    return result


def reader(peer, seconds):
    """One process publishes 10 MiB without pause, this one reads: reads, time-outs, and their seconds."""
    box = peer.large(LARGE)
    source = np.ones(LARGE, "u1")
    out = np.empty(LARGE, "u1")
    plain = []
    for _ in range(20):
        start = time.perf_counter()
        np.copyto(out, source)
        plain.append(time.perf_counter() - start)

    def publish(ready):
        mine = peer.other(box)
        data = [np.full(LARGE, i, "u1") for i in (1, 2)]
        peer.write(mine, data[0])
        os.write(ready, b"x")
        while True:
            for each in data:
                peer.write(mine, each)

    child = forked(publish)
    times, blocked, torn = [], 0, 0
    try:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = time.perf_counter()
            try:
                box.read_into("data", out)
            except peer.Blocked:
                blocked += 1
                continue
            times.append(time.perf_counter() - start)
            torn += bool(out[0] != out[-1] or (out[:: LARGE // 64] != out[0]).any())
    finally:
        killed(child)
    p50, p99 = np.percentile(times, [50, 99]) if times else (float("nan"), float("nan"))
    peer.unblock(box)
    peer.end(box)
    return {
        "reads": len(times),
        "time-outs": blocked,
        "torn": torn,
        "memcpy": median(plain),
        "p50": float(p50),
        "p99": float(p99),
        "seconds": seconds,
    }


def writer_killed(peer, kills):
    """A process that writes 10 MiB without pause is killed: could others read and write on, and what?"""
    result = {"kills": kills, "blocked": 0, "torn": 0, "longest stall": 0.0}
    peer.lock_timeout = 1.0
    chance = random.Random(5)
    out = np.empty(LARGE, "u1")
    for _ in range(kills):
        box = peer.large(LARGE)

        def publish(ready, box=box):
            mine = peer.other(box)
            data = [np.full(LARGE, i, "u1") for i in (1, 2)]
            os.write(ready, b"x")
            while True:
                for each in data:
                    peer.write(mine, each)

        child = forked(publish)
        time.sleep(0.01 + chance.random() * 0.01)
        killed(child)
        start = time.perf_counter()
        try:
            box.read_into("data", out)
            peer.write(box, np.full(LARGE, 3, "u1"))
        except peer.Blocked:
            result["blocked"] += 1
            peer.unblock(box)
            box.read_into("data", out)
        result["longest stall"] = max(result["longest stall"], time.perf_counter() - start)
        result["torn"] += bool((out != out[0]).any())
        peer.end(box)
    return result


def round_trip(peer, rounds=2000):
    """Seconds from a write to the other process' answer; both sleep meanwhile."""
    box = peer.small()

    def answer(ready):
        mine = peer.other(box)
        values = peer.values(mine, "ping")
        os.write(ready, b"x")
        seen = 0
        for value in values:
            if value != seen:
                seen = mine.pong = value

    child = forked(answer)
    times = []
    try:
        values = peer.values(box, "pong")
        for number in range(1, rounds + 1):
            start = time.perf_counter()
            box.ping = number
            for value in values:
                if value == number:
                    break
            times.append(time.perf_counter() - start)
    finally:
        killed(child)
    peer.end(box)
    p50, p99 = np.percentile(times[rounds // 10 :], [50, 99])
    return {"p50": float(p50), "p99": float(p99)}


if __name__ == "__main__":
    name = sys.argv[1]
    peer = {"gristmill": Gristmill, "sharedbox": Sharedbox}[name]()
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 3.0
    print(
        "RESULT "
        + json.dumps(
            {
                "watchers": watchers(peer),
                "reader": reader(peer, seconds),
                "writer killed": writer_killed(peer, KILLS[name]),
                "round trip": {"watch, asleep": round_trip(peer)},
            }
        )
    )
