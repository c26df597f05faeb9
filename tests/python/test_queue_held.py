"""Batches in place against a model, with hypothesis: whatever is put, taken and released in whatever order,
what is held does not change, messages come in order, and all space comes back."""

import os
import queue as pyqueue

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

import gristmill as gm

SPACE = 128 << 10
LARGEST = 60_000


class HeldMachine(RuleBasedStateMachine):
    batches = Bundle("batches")

    @initialize()
    def create(self):
        self.queue = gm.Queue(max_size_bytes=SPACE)
        self.waiting = []  # (number, bytes) of each message in the queue
        self.held = {}  # id -> (batch, numbers)
        self.views = []  # (array, number), whose batches are dropped, not released
        self.number = 0

    def message(self, size):
        """Messages differ in every byte, modulo 251."""
        self.number += 1
        return np.full(size, self.number % 251, np.uint8)

    @rule(size=st.sampled_from([1, 900, 1024, 5000, 17_000, LARGEST]))
    def put(self, size):
        message = self.message(size)
        try:
            self.queue.put({"n": self.number, "array": message}, block=False)
        except pyqueue.Full:
            # Only if it is: an empty queue that nobody keeps takes any message.
            assert self.waiting or self.held or self.views
            self.number -= 1
        else:
            self.waiting.append((self.number, size))

    @rule(sizes=st.lists(st.sampled_from([1, 900, 5000]), max_size=12))
    def put_many(self, sizes):
        first = self.number + 1
        messages = [{"n": first + i, "array": self.message(size)} for i, size in enumerate(sizes)]
        put = len(sizes)
        try:
            self.queue.put_many_nowait(messages)
        except pyqueue.Full as full:
            put = full.put
            assert put < len(sizes)
        self.number = first + put - 1
        self.waiting += [(first + i, size) for i, size in enumerate(sizes[:put])]

    def taken(self, messages):
        expected, self.waiting = self.waiting[: len(messages)], self.waiting[len(messages) :]
        for message, (number, size) in zip(messages, expected, strict=True):
            assert message["n"] == number
            assert message["array"].shape == (size,)
            assert (message["array"] == number % 251).all()
        return [number for number, _ in expected]

    @rule(most=st.integers(1, 5))
    def get(self, most):
        try:
            self.taken(self.queue.get_many_nowait(most))
        except pyqueue.Empty:
            assert not self.waiting

    @rule(target=batches, most=st.integers(1, 5))
    def take(self, most):
        try:
            batch = self.queue.get_many_nowait(most, copy=False)
        except pyqueue.Empty:
            assert not self.waiting
            return None
        assert len(batch) <= most
        self.held[id(batch)] = batch, self.taken(batch)
        return id(batch)

    @rule(batch=consumes(batches))
    def release(self, batch):
        if batch is not None:
            self.held.pop(batch)[0].release()

    @rule(batch=consumes(batches))
    def drop_but_keep_a_view(self, batch):
        """The batch goes, and one array of it stays: that keeps the space as well."""
        if batch is not None:
            held, numbers = self.held.pop(batch)
            self.views.append((held[-1]["array"], numbers[-1]))

    @rule()
    def drop_views(self):
        self.views.clear()

    @invariant()
    def what_is_held_does_not_change(self):
        for batch, numbers in self.held.values():
            assert [message["n"] for message in batch] == numbers
            for message, number in zip(batch, numbers, strict=True):
                assert (message["array"] == number % 251).all()
        for array, number in self.views:
            assert (array == number % 251).all()

    @invariant()
    def sizes_agree(self):
        assert self.queue.qsize() == len(self.waiting)
        holders = self.queue.holders()
        if self.held:
            assert [holder["pid"] for holder in holders] == [os.getpid()]
            assert holders[0]["taken"] >= sum(len(numbers) for _, numbers in self.held.values())
        elif not self.views:
            assert holders == []
            if not self.waiting:
                assert self.queue.data_size() == 0


TestHeldMachine = HeldMachine.TestCase
TestHeldMachine.settings = settings(deadline=None, max_examples=300, stateful_step_count=50)
