"""One simulation of many timers with one queue, in a process of its own: ours, or a peer.

Arguments: queue, connections, hertz, seconds. The last line is "RESULT {…}". Each of the connections has a
timer of ten minutes; they are restarted in turn, so many a second of simulated time, and after each restart
what is due is taken.
"""

import heapq
import json
import sys
import time
from pathlib import Path

TIMEOUT = 600.0


class Heapq:
    """heapq's own recipe, lazy deletion: the entry of a restarted timer is marked, and dropped when its time
    comes; with `eager`, as soon as it is the first."""

    def __init__(self, most_cancelled=None, eager=False):
        self.heap = []
        self.entries = {}
        self.cancelled = 0
        self.count = 0
        self.most_cancelled = most_cancelled
        self.eager = eager

    def schedule(self, key, deadline):
        self.count += 1
        entry = self.entries[key] = [deadline, self.count, key]
        heapq.heappush(self.heap, entry)

    def restart(self, key, deadline):
        self.entries[key][2] = None
        self.cancelled += 1
        self.schedule(key, deadline)
        if self.most_cancelled is not None and self.cancelled > self.most_cancelled * len(self.heap):
            self.heap = [entry for entry in self.heap if entry[2] is not None]
            heapq.heapify(self.heap)
            self.cancelled = 0

    def expire(self, now):
        due = []
        heap = self.heap
        while heap and (heap[0][0] <= now or (self.eager and heap[0][2] is None)):
            _, _, key = heapq.heappop(heap)
            if key is None:
                self.cancelled -= 1
            else:
                del self.entries[key]
                due.append(key)
        return due

    def __len__(self):
        return len(self.heap)


class Sorted:
    """sortedcontainers: a restart takes the old entry out and puts the new one in."""

    def __init__(self):
        from sortedcontainers import SortedDict

        self.timers = SortedDict()
        self.entries = {}
        self.count = 0

    def schedule(self, key, deadline):
        self.count += 1
        self.entries[key] = (deadline, self.count)
        self.timers[deadline, self.count] = key

    def restart(self, key, deadline):
        del self.timers[self.entries[key]]
        self.schedule(key, deadline)

    def expire(self, now):
        due = []
        while self.timers and self.timers.peekitem(0)[0][0] <= now:
            _, key = self.timers.popitem(0)
            del self.entries[key]
            due.append(key)
        return due

    def __len__(self):
        return len(self.timers)


class Ours:
    """gm.TimerQueue, called from Python."""

    def __init__(self):
        import gristmill as gm

        self.timers = gm.TimerQueue()
        self.ids = {}

    def schedule(self, key, deadline):
        self.ids[key] = self.timers.schedule(deadline)

    def restart(self, key, deadline):
        self.timers.restart(self.ids[key], deadline)

    def expire(self, now):
        return self.timers.expire(now)

    def __len__(self):
        return len(self.timers)


QUEUES = {
    "gristmill-python": Ours,
    "heapq": Heapq,
    "heapq-eager": lambda: Heapq(eager=True),
    "heapq-reheapify": lambda: Heapq(0.8),
    "sortedcontainers": Sorted,
}


def memory(name):
    """Bytes: VmRSS, what this process holds; VmHWM, the most it held (ru_maxrss is its parent's, too)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def start_of_memory():
    """What it holds now; VmHWM counts from here."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def simulate(queue, connections, hertz, seconds):
    for key in range(connections):
        queue.schedule(key, TIMEOUT)
    longest = expired = key = 0
    restart, expire = queue.restart, queue.expire
    for step in range(1, int(seconds * hertz) + 1):
        now = step / hertz
        restart(key, now + TIMEOUT)
        expired += len(expire(now))
        if len(queue) > longest:
            longest = len(queue)
        key += 1
        if key == connections:
            key = 0
    return {"longest": longest, "expired": expired}


def main():
    name = sys.argv[1]
    connections, hertz, seconds = (int(argument) for argument in sys.argv[2:5])
    if name == "gristmill":
        from gristmill import _core

        before = start_of_memory()
        result = _core._simulate_timers(connections, hertz, seconds, TIMEOUT)
        del result["restarts"]
    elif name == "restart-cost":
        from gristmill import _core

        count = connections
        result = {
            "in_turn_ns": _core._timer_restart_ns(count, 2_000_000, False),
            "random_ns": _core._timer_restart_ns(count, 2_000_000, True),
        }
        print("RESULT " + json.dumps(result))
        return
    else:
        queue = QUEUES[name]()
        before = start_of_memory()
        begin = time.process_time()
        result = simulate(queue, connections, hertz, seconds)
        result["cpu_s"] = time.process_time() - begin
    result["resident_bytes"] = max(0, memory("VmHWM") - before)
    print("RESULT " + json.dumps(result))


main()
