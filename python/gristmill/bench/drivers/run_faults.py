"""Trials of one queue or box with kill -9, in a process of its own: ours, and in a peer's environment theirs.

    python run_faults.py queue gristmill|faster-fifo|multiprocessing VICTIM BYTES TRIALS SEED
    python run_faults.py box gristmill|sharedbox BYTES TRIALS SEED

Every contestant goes through the same trials. A queue: two producers and a consumer run; at a random moment
one of them (VICTIM: producer or consumer) is killed; the others go on a little; then a fresh consumer takes
over, which must come to take everything that the producers were told is in: after three seconds without any
progress the queue counts as hung. A box: its writer is killed amid back-to-back writes of two arrays; a fresh
reader and a fresh writer are given three seconds each.

Prints "RESULT {trials, hung, lost_in, lost, damaged, …}". Imports nothing of gristmill's but the part under
test.
"""

import contextlib
import ctypes
import json
import multiprocessing as mp
import os
import random
import signal
import sys
import time

GIVEN_S = 3.0
MOST = 400_000  # messages of one producer and trial
BYTES = 32 << 20  # in a queue, at most
context = mp.get_context("fork")


class GristmillQueue:
    def __init__(self, size):
        import gristmill as gm

        self.queue = gm.Queue(max_size_bytes=BYTES)
        self.put = self.queue.put
        self.get = lambda timeout: self.queue.get(True, timeout)


class FasterFifoQueue:
    def __init__(self, size):
        import faster_fifo
        import faster_fifo_reduction  # noqa: F401

        queue = self.queue = faster_fifo.Queue(max_size_bytes=BYTES)
        self.put = lambda x: queue.put(x, True, 600.0)
        self.get = lambda timeout: queue.get(True, timeout)


class MultiprocessingQueue:
    def __init__(self, size):
        self.queue = context.Queue(min(30_000, BYTES // size))  # its semaphore counts to 32 767
        self.put = self.queue.put
        self.get = lambda timeout: self.queue.get(True, timeout)


QUEUES = {
    "gristmill": GristmillQueue,
    "faster-fifo": FasterFifoQueue,
    "multiprocessing": MultiprocessingQueue,
}


class Account:
    """What the processes of a trial write down, in memory that survives them. Each word has one writer."""

    def __init__(self):
        self.stop = context.RawValue(ctypes.c_bool, False)  # the producers
        self.leave = context.RawValue(ctypes.c_bool, False)  # the first consumer
        self.acknowledged = context.RawArray(ctypes.c_int64, 2)
        # How often each message was taken.
        self.taken = [context.RawArray(ctypes.c_uint8, MOST) for _ in range(2)]
        self.damaged = context.RawValue(ctypes.c_int64, 0)


def content(producer, number, size):
    return bytes([(producer * 31 + number) & 0xFF]) * size


def produce(queue, producer, size, account):
    for number in range(MOST):
        if account.stop.value:
            return
        queue.put((producer, number, content(producer, number, size)))
        account.acknowledged[producer] = number + 1


def consume(queue, size, account, fresh):
    from queue import Empty

    while fresh or not account.leave.value:
        try:
            producer, number, data = queue.get(0.1)
        except Empty:
            continue
        if data != content(producer, number, size):
            account.damaged.value += 1
        account.taken[producer][number] += 1


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def missing(account):
    return sum(
        memoryview(account.taken[p]).cast("B")[: account.acknowledged[p]].tobytes().count(0) for p in range(2)
    )


def queue_trial(kind, victim, size, random_):
    queue, account = QUEUES[kind](size), Account()
    producers = [context.Process(target=produce, args=(queue, p, size, account)) for p in range(2)]
    consumer = context.Process(target=consume, args=(queue, size, account, False))
    everybody = [*producers, consumer]
    for process in everybody:
        process.start()
    try:
        time.sleep(random_.uniform(0.02, 0.08))
        kill(producers[0] if victim == "producer" else consumer)
        time.sleep(0.02)
        account.stop.value = account.leave.value = True
        excused = 1  # what the consumer had taken when it was killed died with it: one message at most
        if victim == "producer":
            consumer.join(1.0)
            if consumer.is_alive():
                kill(consumer)
            else:
                excused = 0
        fresh = context.Process(target=consume, args=(queue, size, account, True))
        everybody.append(fresh)
        fresh.start()
        hung = not await_all(queue, account, producers)
        # Where somebody hangs, what is not there may still be in the queue: that is no loss.
        lost = 0 if hung else max(0, missing(account) - excused)
        return {"hung": hung, "lost": lost, "doubled": doubled(account), "damaged": account.damaged.value}
    finally:
        for process in everybody:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.join()


def await_all(queue, account, producers):
    """Until everything acknowledged is taken, or the queue is empty; False: no progress for GIVEN_S."""
    before, since = None, time.monotonic()
    while time.monotonic() - since < GIVEN_S:
        left, putting = missing(account), any(p.is_alive() for p in producers)
        if left == 0 and not putting:
            return True
        state = (left, *account.acknowledged)
        if state != before:
            before, since = state, time.monotonic()
        elif not putting and time.monotonic() - since > 1.0 and is_drained(queue):
            return True  # nothing is there for the fresh consumer, which waits: what is missing is lost
        time.sleep(0.005)
    return False


def is_drained(queue):
    """Whether the queue itself says that nothing is in it."""
    return bool(queue.queue.empty())


def doubled(account):
    taken = (bytes(memoryview(account.taken[p]).cast("B")).strip(b"\0") for p in range(2))
    return sum(1 for counts in taken for count in counts if count > 1)


def run_queue(kind, victim, size, trials, seed):
    random_ = random.Random(seed)
    total = {"trials": trials, "hung": 0, "lost_in": 0, "lost": 0, "doubled": 0, "damaged": 0}
    for _ in range(trials):
        one = queue_trial(kind, victim, size, random_)
        total["hung"] += one["hung"]
        total["lost_in"] += one["lost"] > 0
        for key in ("lost", "doubled", "damaged"):
            total[key] += one[key]
    return total


class GristmillBox:
    def __init__(self, size):
        import numpy as np

        import gristmill as gm

        self.box = gm.Box(a=np.zeros(size, "u1"), b=np.zeros(size, "u1"))

    def write(self, a, b):
        self.box.update(a=a, b=b)

    def read(self):
        found = self.box.snapshot()
        return found.a, found.b

    def force(self):
        pass

    def close(self):
        self.box.close()


class SharedboxBox:
    def __init__(self, size):
        from typing import Annotated

        import numpy as np
        from sharedbox import DType, Shape, SharedBox

        class Two(SharedBox, lock_timeout=GIVEN_S):
            a: Annotated[np.ndarray, Shape(size), DType("uint8")]
            b: Annotated[np.ndarray, Shape(size), DType("uint8")]

        self.kind, self.name = Two, f"soak{os.getpid()}"
        zeros = np.zeros(size, "u1")
        self.box = Two.create(self.name, zeros, zeros)

    def write(self, a, b):
        self.box.update(a=a, b=b)

    def read(self):
        found = self.box.snapshot()
        return found["a"], found["b"]

    def force(self):
        self.box.force_unlock()

    def close(self):
        self.box.close()
        self.kind.unlink(self.name)


BOXES = {"gristmill": GristmillBox, "sharedbox": SharedboxBox}


def write_on(box, size):
    import numpy as np

    n = 0
    while True:
        n = (n + 1) % 256
        data = np.full(size, n, "u1")
        for _ in range(20):
            box.write(data, data)


def attempt(action):
    """ "ok", "torn", "refused" with a typed error, or "blocked": not done in the time given."""

    def body(pipe):
        try:
            pipe.send(action())
        except Exception:
            pipe.send("refused")

    mine, other = context.Pipe(False)
    process = context.Process(target=body, args=(other,))
    process.start()
    done = mine.poll(GIVEN_S + 1)
    outcome = mine.recv() if done else "blocked"
    process.kill()
    process.join()
    return outcome


def box_trial(kind, size, random_):
    import numpy as np

    box = BOXES[kind](size)

    def read():
        a, b = box.read()
        return "torn" if a.min() != a.max() or b.min() != b.max() or a[0] != b[0] else "ok"

    def write():
        data = np.full(size, 7, "u1")
        box.write(data, data)
        return "ok"

    def forced():
        box.force()
        return read()

    try:
        writer = context.Process(target=write_on, args=(box, size))
        writer.start()
        time.sleep(random_.uniform(0.02, 0.06))
        kill(writer)
        reading = attempt(read)
        writing = attempt(write) if reading == "ok" else reading
        stuck = "ok" not in (reading, writing) or reading != "ok"
        after = attempt(forced) if stuck else "ok"
        return {
            "blocked": reading in ("blocked", "refused") or writing in ("blocked", "refused"),
            "torn": "torn" in (reading, after),
        }
    finally:
        box.close()


def run_box(kind, size, trials, seed):
    random_ = random.Random(seed)
    total = {"trials": trials, "blocked": 0, "torn": 0}
    for _ in range(trials):
        one = box_trial(kind, size, random_)
        for key in ("blocked", "torn"):
            total[key] += one[key]
    return total


def main(words):
    if words[0] == "queue":
        kind, victim, size, trials, seed = words[1], words[2], *map(int, words[3:6])
        result = run_queue(kind, victim, size, trials, seed)
    else:
        result = run_box(words[1], *map(int, words[2:5]))
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1:])
