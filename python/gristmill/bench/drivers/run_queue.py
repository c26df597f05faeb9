"""One measurement of one queue, in a process of its own: ours, and in the peers' environment theirs.

Arguments: case, queue, then the case's numbers. The last line is "RESULT {…}". All queues do the same work
in the same way; a get_many that a queue lacks is a get.
"""

import json
import mmap
import multiprocessing as mp
import os
import resource
import statistics
import sys
import tempfile
import time
from functools import partial

# For all that have such a limit.
BYTES = 16 << 20
WAIT = 600.0
context = mp.get_context("fork")


class GristmillQueue:
    def __init__(self, size=BYTES, **options):
        import gristmill as gm

        self.queue = gm.Queue(max_size_bytes=size, **options)
        self.put, self.get, self.put_many = self.queue.put, self.queue.get, self.queue.put_many
        self.get_many = self.queue.get_many


class FasterFifoQueue:
    def __init__(self, size=BYTES):
        import faster_fifo
        import faster_fifo_reduction  # noqa: F401

        self.queue = faster_fifo.Queue(max_size_bytes=size)
        queue = self.queue
        self.put = lambda x: queue.put(x, True, WAIT)
        self.get = lambda: queue.get(True, WAIT)
        self.put_many = lambda xs: queue.put_many(xs, True, WAIT)
        self.get_many = lambda: queue.get_many(True, WAIT)


class MultiprocessingQueue:
    def __init__(self, size=BYTES):
        self.queue = context.Queue()
        self.put, self.get = self.queue.put, self.queue.get
        self.put_many = None
        self.get_many = lambda: [self.queue.get()]


QUEUES = {
    "gristmill": GristmillQueue,
    "faster-fifo": FasterFifoQueue,
    "multiprocessing": MultiprocessingQueue,
}


def spread(target, many_arguments):
    processes = [context.Process(target=target, args=arguments) for arguments in many_arguments]
    for process in processes:
        process.start()
    return processes


def produce(queue, count):
    put = queue.put
    for i in range(count):
        put((i,) * 5)


def consume(queue, many, counts):
    taken = 0
    if many:
        # 1: all there are; more: at most so many.
        get_many = queue.get_many if many == 1 else partial(queue.get_many, max_messages_to_get=many)
        while True:
            batch = get_many()
            # The ends come behind all messages: their producers are done.
            ends = batch.count(None) if batch[-1] is None else 0
            taken += len(batch) - ends
            if ends:
                for _ in range(ends - 1):
                    queue.put(None)
                break
    else:
        get = queue.get
        while get() is not None:
            taken += 1
    counts.put(taken)


def table(kind, producers, consumers, messages, many):
    """Seconds from the first process start to the last join."""
    queue, counts = QUEUES[kind](), context.SimpleQueue()
    begin = time.perf_counter()
    takers = spread(consume, [(queue, many, counts)] * consumers)
    makers = spread(produce, [(queue, messages)] * producers)
    for process in makers:
        process.join()
    for _ in takers:
        queue.put(None)
    taken = sum(counts.get() for _ in takers)
    for process in takers:
        process.join()
    seconds = time.perf_counter() - begin
    if taken != producers * messages or any(p.exitcode for p in makers + takers):
        sys.exit(f"{taken} of {producers * messages} messages arrived")
    return {"seconds": seconds}


def send(queue, messages, batched):
    if batched:
        batch = [b"MESSAGE"] * 1000
        for _ in range(messages // 1000):
            queue.put_many(batch)
    else:
        put = queue.put
        for _ in range(messages):
            put(b"MESSAGE")


def stream(kind, messages, batched, raw):
    """Messages a second, one sender, one receiver."""
    if kind.startswith("zmq"):
        return stream_zmq(kind, messages)
    queue = QUEUES[kind](**({"serializer": "raw"} if raw else {}))
    begin = time.perf_counter()
    sender = context.Process(target=send, args=(queue, messages, batched))
    sender.start()
    taken = 0
    get_many = queue.get_many
    while taken < messages:
        taken += len(get_many())
    sender.join()
    return {"per_s": taken / (time.perf_counter() - begin)}


def send_zmq(address, messages):
    import zmq

    socket = zmq.Context().socket(zmq.PUSH)
    socket.connect(address)
    for _ in range(messages):
        socket.send(b"MESSAGE")
    socket.close()


def stream_zmq(kind, messages):
    import zmq

    folder = tempfile.mkdtemp()
    address = f"ipc://{folder}/socket" if kind == "zmq-ipc" else "tcp://127.0.0.1:*"
    begin = time.perf_counter()
    # The child makes a context of its own: this one starts after the fork.
    address_pipe = context.Pipe()
    sender = context.Process(target=lambda: send_zmq(address_pipe[1].recv(), messages))
    sender.start()
    socket = zmq.Context().socket(zmq.PULL)
    socket.bind(address)
    address_pipe[0].send(socket.getsockopt_string(zmq.LAST_ENDPOINT))
    for _ in range(messages):
        socket.recv()
    sender.join()
    return {"per_s": messages / (time.perf_counter() - begin)}


def send_arrays(queue, array, count):
    for _ in range(count):
        queue.put(array)


def copy_in_one_process(size, count):
    """Both copies one after the other, from and to buffers that stay in the caches as far as they fit."""
    import numpy as np

    array = np.ones(size, np.uint8)
    middle, end = np.empty_like(array), np.empty_like(array)
    np.copyto(middle, array)
    np.copyto(end, middle)
    begin = time.perf_counter()
    for _ in range(count):
        np.copyto(middle, array)
        np.copyto(end, middle)
    return {"per_s": size * count / (time.perf_counter() - begin)}


def wait_past(counts, at, value):
    """Spins, which is the quickest hand-over; yields when it takes long, for machines with few cores."""
    spins = 0
    while counts[at] <= value:
        spins += 1
        if spins > 1000:
            os.sched_yield()


def copy_in(array, slots, counts, count):
    import numpy as np

    for i in range(count):
        wait_past(counts, 8, i - len(slots))
        np.copyto(slots[i % len(slots)], array)
        counts[0] = i + 1


def copy_in_two_processes(size, count, ring):
    """What a queue has to do at least.

    A process copies into shared memory of the queue's size, going round it as a FIFO must, and another copies
    out of it, into a buffer of its own that it uses again and again.
    """
    import numpy as np

    array, end = np.ones(size, np.uint8), np.empty(size, np.uint8)
    slots = np.frombuffer(mmap.mmap(-1, ring // size * size), np.uint8).reshape(-1, size)
    counts = np.frombuffer(mmap.mmap(-1, 4096), np.int64)
    sender = context.Process(target=copy_in, args=(array, slots, counts, count))
    begin = time.perf_counter()
    sender.start()
    for i in range(count):
        wait_past(counts, 0, i)
        np.copyto(end, slots[i % len(slots)])
        counts[8] = i + 1
    sender.join()
    return {"per_s": size * count / (time.perf_counter() - begin)}


def bandwidth(kind, size, count, in_place):
    """Payload bytes a second of uint8 arrays, and of two plain copies of each."""
    import numpy as np

    ring = max(BYTES, 4 * size + (1 << 20))
    if kind == "memcpy":
        return copy_in_one_process(size, count)
    if kind == "memcpy-2":
        return copy_in_two_processes(size, count, ring)
    array = np.ones(size, np.uint8)
    queue = QUEUES[kind](ring)
    sender = context.Process(target=send_arrays, args=(queue, array, count))
    begin = time.perf_counter()
    sender.start()
    taken = 0
    while taken < count:
        if in_place:
            with queue.get_many(copy=False) as batch:
                taken += len(batch)
                assert all(one.size == size for one in batch)
        else:
            taken += len(queue.get_many())
    sender.join()
    return {"per_s": size * count / (time.perf_counter() - begin)}


def switches():
    """How often this process went to sleep so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


# Long enough for whoever waits to be asleep.
PAUSE = 300e-6


def answer(there, back, count):
    for _ in range(count):
        there.get()
        came = time.perf_counter()
        time.sleep(PAUSE)
        back.put((came, time.perf_counter()))
    back.put(switches())


def round_trip(kind, count):
    """Microseconds there and back between two processes, each asleep in get when its message is sent.

    Both pause before they send, so that the other has gone to sleep; the pauses are not counted. "sleeps" is
    how often the two slept in a round, pauses included: 4 when every get did.
    """
    there, back = QUEUES[kind](1 << 20), QUEUES[kind](1 << 20)
    child = context.Process(target=answer, args=(there, back, count))
    child.start()
    times = []
    before = switches()
    for i in range(count):
        time.sleep(PAUSE)
        begin = time.perf_counter()
        there.put(i)
        came, sent = back.get()
        times.append((came - begin + time.perf_counter() - sent) * 1e6)
    sleeps = switches() - before + back.get()
    child.join()
    times = sorted(times[count // 10 :])
    return {
        "p50_us": statistics.median(times),
        "p99_us": times[int(len(times) * 0.99)],
        "sleeps": sleeps / count,
    }


def echo(there, back, count):
    for _ in range(count):
        back.put(there.get())


def ping_pong(kind, count):
    """Microseconds there and back, without a pause: who waits need not fall asleep."""
    there, back = QUEUES[kind](1 << 20), QUEUES[kind](1 << 20)
    child = context.Process(target=echo, args=(there, back, count))
    child.start()
    times = []
    for i in range(count):
        begin = time.perf_counter()
        there.put(i)
        back.get()
        times.append((time.perf_counter() - begin) * 1e6)
    child.join()
    times = sorted(times[count // 10 :])
    return {"p50_us": statistics.median(times), "p99_us": times[int(len(times) * 0.99)]}


CASES = {
    "table": table,
    "stream": stream,
    "bandwidth": bandwidth,
    "round-trip": round_trip,
    "ping-pong": ping_pong,
}

if __name__ == "__main__":
    case, kind, *numbers = sys.argv[1:]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print("RESULT " + json.dumps(CASES[case](kind, *map(int, numbers))))
