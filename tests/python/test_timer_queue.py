"""gm.TimerQueue: its contract in Python, and a random walk beside a list that is searched."""

import copy
import math
import sys
import time

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

import gristmill as gm


def test_timers_expire_by_deadline_and_equal_ones_in_the_order_of_scheduling():
    timers = gm.TimerQueue()
    late, first, second = timers.schedule(3.5), timers.schedule(1), timers.schedule(1.0)
    assert len(timers) == 3
    assert timers.next_deadline == 1.0
    assert timers.expire(0.999) == []
    assert timers.expire(now=1) == [first, second]
    assert timers.next_deadline == 3.5
    assert timers.expire(math.inf) == [late]
    assert timers.next_deadline is None
    assert len(timers) == 0


def test_a_restart_moves_a_deadline_either_way():
    timers = gm.TimerQueue()
    a, b = timers.schedule(10.0), timers.schedule(20.0)
    timers.restart(a, 30.0)
    assert (timers.next_deadline, timers.deadline(a)) == (20.0, 30.0)
    timers.restart(id=a, deadline=5.0)
    assert timers.next_deadline == 5.0
    timers.cancel(b)
    assert a in timers
    assert b not in timers
    assert timers.expire(100.0) == [a]


def test_an_id_that_is_no_timers_is_a_key_error_that_names_it():
    timers = gm.TimerQueue()
    expired = timers.schedule(0.0)
    assert timers.expire(0.0) == [expired]
    cancelled = timers.schedule(0.0)
    timers.cancel(cancelled)
    living = timers.schedule(7.0)
    for bad in (expired, cancelled, living + 1, 0, -1, 2**64 + living):
        assert bad not in timers
        for call in (lambda x: timers.restart(x, 1.0), timers.cancel, timers.deadline):
            with pytest.raises(KeyError, match=str(bad)):
                call(bad)
    assert timers.deadline(living) == 7.0


def test_what_is_no_time_or_no_id_is_refused_and_changes_nothing():
    timers = gm.TimerQueue()
    one = timers.schedule(1.0)
    for call in (timers.schedule, lambda t: timers.restart(one, t), timers.expire):
        with pytest.raises(ValueError, match="nan"):
            call(math.nan)
        with pytest.raises(TypeError):
            call("soon")
        with pytest.raises(TypeError):
            call(None)
    for call in (timers.cancel, timers.deadline, lambda x: timers.restart(x, 2.0)):
        with pytest.raises(TypeError):
            call("one")
        with pytest.raises(TypeError):
            call(1.5)
    with pytest.raises(TypeError, match="argument"):
        timers.restart(one)
    with pytest.raises(TypeError, match="argument"):
        timers.schedule(1.0, 2.0)
    with pytest.raises(TypeError, match="'when'"):
        timers.schedule(when=1.0)
    with pytest.raises(TypeError):
        gm.TimerQueue(3)
    with pytest.raises(TypeError):
        copy.copy(timers)
    assert (len(timers), timers.deadline(one)) == (1, 1.0)


def test_no_float_is_rounded():
    timers = gm.TimerQueue()
    times = [-math.inf, -1e300, -1.5, -5e-324, 0.0, 5e-324, 0.1, math.nextafter(0.1, 1), 1e18, 1.7e308]
    ids = [timers.schedule(t) for t in reversed(times)][::-1]
    assert [timers.deadline(i) for i in ids] == times
    assert timers.expire(0.1) == ids[:7]
    assert timers.expire(sys.float_info.max) == ids[7:]
    zero = timers.schedule(-0.0)
    assert timers.expire(0.0) == [zero]


def test_infinity_never_comes_and_the_past_is_due():
    timers = gm.TimerQueue()
    never = timers.schedule(math.inf)
    assert timers.next_deadline == math.inf
    past = timers.schedule(time.monotonic() - 1)
    assert timers.expire(time.monotonic()) == [past]
    assert timers.expire(math.inf) == []
    timers.cancel(never)


def test_the_repr_tells_how_many_and_the_next():
    timers = gm.TimerQueue()
    assert "empty" in repr(timers)
    timers.schedule(2.5)
    assert "1 timers, the next at 2.5" in repr(timers)


TIMES = st.one_of(
    st.integers(-3, 12).map(float), st.floats(allow_nan=False), st.sampled_from([0.1, 0.2, 0.1 + 0.2, 0.3])
)


class Walk(RuleBasedStateMachine):
    """Any calls in any order do what they would to a list that is searched."""

    live = Bundle("live")

    def __init__(self):
        super().__init__()
        self.timers = gm.TimerQueue()
        self.model = {}  # id -> deadline, in the order of scheduling
        self.gone = set()

    @rule(target=live, deadline=TIMES)
    def schedule(self, deadline):
        made = self.timers.schedule(deadline)
        assert made not in self.model
        assert made not in self.gone
        self.model[made] = deadline
        return made

    @rule(target=live, deadlines=st.lists(TIMES, min_size=5, max_size=40))
    def schedule_many(self, deadlines):
        return multiple(*(self.schedule(d) for d in deadlines))

    @rule(timer=live, deadline=TIMES)
    def restart(self, timer, deadline):
        if timer in self.gone:
            with pytest.raises(KeyError):
                self.timers.restart(timer, deadline)
        else:
            self.timers.restart(timer, deadline)
            self.model[timer] = deadline

    @rule(deadline=st.integers(0, 10).map(float))
    def restart_all(self, deadline):
        for timer in self.model:
            self.timers.restart(timer, deadline)
            self.model[timer] = deadline

    @rule(timer=consumes(live))
    def cancel(self, timer):
        if timer in self.gone:
            with pytest.raises(KeyError):
                self.timers.cancel(timer)
        else:
            self.timers.cancel(timer)
            del self.model[timer]
            self.gone.add(timer)

    @rule(now=TIMES)
    def expire(self, now):
        due = sorted((i for i, d in self.model.items() if d <= now and d < math.inf), key=self.model.get)
        assert self.timers.expire(now) == due
        for timer in due:
            del self.model[timer]
        self.gone.update(due)

    @rule()
    def look(self):
        assert self.timers.next_deadline == min(self.model.values(), default=None)

    @invariant()
    def as_many_as_live(self):
        assert len(self.timers) == len(self.model)


Walk.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestWalk = Walk.TestCase
