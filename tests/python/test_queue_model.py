"""gristmill.Queue against models of it, with hypothesis: what comes out, and what every method does."""

import math
import pickle
import queue as pyqueue

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import gristmill as gm

texts = st.text(st.characters(exclude_categories=()), max_size=300)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.complex_numbers()
    | texts
    | st.binary(max_size=3000),
    lambda inner: (
        st.lists(inner, max_size=8)
        | st.lists(inner, max_size=8).map(tuple)
        | st.dictionaries(texts | st.integers() | st.tuples(st.integers(), texts), inner, max_size=5)
        | st.frozensets(st.integers(), max_size=3)
    ),
    max_leaves=40,
)


def same(a, b):
    """Equal with types, the sign of zeros, NaNs and the order of dicts."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(
            same(k, j) and same(v, w) for (k, v), (j, w) in zip(a.items(), b.items(), strict=True)
        )
    return a == b


@pytest.fixture(scope="module")
def shared():
    return gm.Queue()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=st.lists(plain, min_size=1, max_size=5))
def test_what_comes_out_is_what_went_in(shared, messages):
    shared.put_many(messages)
    assert same(shared.get_many(), messages)
    for message in messages:
        shared.put(message)
    assert same([shared.get() for _ in messages], messages)
    shared.put_many(messages)
    with shared.get_many(copy=False) as batch:
        assert same(list(batch), messages)


dtypes = st.sampled_from(["?", "i1", "u2", "<i4", ">i4", "i8", "f2", "f4", ">f8", "c16", "S3", "U2", "M8[s]"])


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    dtype=dtypes,
    shape=st.lists(st.integers(0, 7), max_size=4),
    steps=st.lists(st.sampled_from([1, 2, -1, -3]), min_size=4, max_size=4),
    order=st.sampled_from("CF"),
    pad=st.integers(0, 3),
)
def test_arrays_come_out_as_they_went_in(shared, dtype, shape, steps, order, pad):
    count = math.prod(shape)
    values = np.arange(count * np.dtype(dtype).itemsize, dtype=np.uint8) % 2
    array = (
        np.frombuffer(values.tobytes(), dtype=dtype)
        .reshape(shape, order=order)[tuple(slice(None, None, step) for step in steps[: len(shape)])]
        .copy(order=order if pad else "K")
    )
    message = ("x" * pad, array, {"strided": array[..., ::2] if array.ndim else array})
    shared.put(message)
    with shared.get_many(copy=False) as batch:
        np.testing.assert_array_equal(batch[0][1], message[1])
    shared.put(message)
    got = shared.get()
    for a, b in ((got[1], message[1]), (got[2]["strided"], message[2]["strided"])):
        np.testing.assert_array_equal(a, b)
        # NumPy's own pickle makes strided arrays of the other byte order native.
        assert a.dtype == pickle.loads(pickle.dumps(b, 5)).dtype
        assert a.shape == b.shape


class QueueMachine(RuleBasedStateMachine):
    """Every method that does not wait, beside a list."""

    @initialize(maxsize=st.integers(1, 6), overflow=st.sampled_from(["block", "drop_oldest", "latest"]))
    def create(self, maxsize, overflow):
        self.queue = gm.Queue(maxsize, overflow=overflow)
        self.other = gm.Queue.attach(self.queue.name)
        self.maxsize, self.overflow = maxsize, overflow
        self.model, self.dropped, self.number, self.down = [], 0, 0, False

    def handle(self, which):
        return self.other if which else self.queue

    def next_message(self):
        self.number += 1
        return (self.number, "x" * (self.number % 50))

    def model_put(self, message):
        if self.overflow == "block" and len(self.model) == self.maxsize:
            return False
        if self.overflow == "latest":
            self.dropped += len(self.model)
            self.model.clear()
        elif len(self.model) == self.maxsize:
            self.dropped += 1
            self.model.pop(0)
        self.model.append(message)
        return True

    @rule(which=st.booleans())
    def put(self, which):
        message = self.next_message()
        if self.down:
            with pytest.raises(ValueError):
                self.handle(which).put_nowait(message)
        elif self.model_put(message):
            self.handle(which).put(message, timeout=0)
        else:
            with pytest.raises(pyqueue.Full):
                self.handle(which).put(message, False)

    @precondition(lambda self: not self.down and self.overflow == "block")
    @rule(which=st.booleans(), count=st.integers(0, 8))
    def put_many(self, which, count):
        messages = [self.next_message() for _ in range(count)]
        put = sum(self.model_put(message) for message in messages)
        if put == count:
            self.handle(which).put_many_nowait(messages)
        else:
            with pytest.raises(pyqueue.Full) as caught:
                self.handle(which).put_many(messages, block=False)
            assert caught.value.put == put

    @rule(which=st.booleans())
    def get(self, which):
        if self.model:
            assert self.handle(which).get(timeout=0) == self.model.pop(0)
        else:
            with pytest.raises(ValueError if self.down else pyqueue.Empty):
                self.handle(which).get_nowait()

    @rule(which=st.booleans(), most=st.integers(1, 8), copy=st.booleans())
    def get_many(self, which, most, copy):
        if not self.model:
            with pytest.raises(ValueError if self.down else pyqueue.Empty):
                self.handle(which).get_many_nowait(most, copy=copy)
            return
        got = self.handle(which).get_many(timeout=0, max_messages_to_get=most, copy=copy)
        assert list(got) == self.model[:most]
        del self.model[:most]
        if not copy:
            got.release()

    @rule()
    def shutdown(self):
        # Rarely: it is the end of most rules.
        if self.number % 7 == 6:
            self.queue.shutdown()
            self.down = True

    @invariant()
    def sizes_agree(self):
        if not hasattr(self, "model"):
            return
        assert self.queue.qsize() == self.other.qsize() == len(self.model)
        assert self.queue.empty() == (not self.model)
        assert self.queue.full() == (len(self.model) == self.maxsize)
        assert self.other.is_closed() == self.down
        assert self.queue.statistics()["dropped"] == self.dropped


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)
