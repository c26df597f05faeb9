"""CPython's own tests of multiprocessing.Queue, and of queue.Queue as far as the two agree, from its test
package, run against gristmill.Queue."""

import multiprocessing
import queue as pyqueue
import time
import unittest

import pytest

import gristmill as gm

# Python's distributions for users leave the package out.
theirs = pytest.importorskip("test._test_multiprocessing")
threads = pytest.importorskip("test.test_queue")


class _QueueTests(theirs._TestQueue):
    TYPE = "processes"
    Process = multiprocessing.Process
    Event = staticmethod(multiprocessing.Event)
    Queue = staticmethod(gm.Queue)

    # There is no feeder thread: put itself raises for what cannot be pickled.
    def test_queue_feeder_donot_stop_onexc(self):
        class NotSerializable:
            def __reduce__(self):
                raise AttributeError

        for maxsize in (0, 1):
            q = self.Queue(maxsize)
            with pytest.raises(AttributeError):
                q.put(NotSerializable())
            q.put(True)
            assert q.qsize() == 1
            assert q.get(timeout=30)
            assert q.empty()

    def test_closed_queue_put_get_exceptions(self):
        q = self.Queue()
        q.close()
        with pytest.raises(ValueError, match="is closed"):
            q.put("foo")
        with pytest.raises(ValueError, match="is closed"):
            q.get()

    def test_timeout(self):
        q = self.Queue()
        begin = time.monotonic()
        with pytest.raises(pyqueue.Empty):
            q.get(True, 0.2)
        assert time.monotonic() - begin >= 0.2

    # Of JoinableQueue, of the feeder thread, and of multiprocessing's own module.
    test_task_done = None
    test_queue_feeder_on_queue_feeder_error = None
    test_no_import_lock_contention = None


class _ThreadTests(threads.BaseQueueTestMixin):
    type2test = gm.Queue
    queue = pyqueue

    # Of task_done and join, which multiprocessing.Queue has not, and of a maxsize that changes.
    test_queue_task_done = None
    test_queue_join = None
    test_shrinking_queue = None


def names_of(cases):
    names = unittest.TestLoader().getTestCaseNames(cases)
    return [name for name in names if getattr(cases, name) is not None]


CASES = [(cases, name) for cases in (_QueueTests, _ThreadTests) for name in names_of(cases)]


def test_there_are_enough_of_them():
    assert {"test_put", "test_get", "test_fork", "test_qsize", "test_basic"} <= {name for _, name in CASES}


@pytest.mark.parametrize(("cases", "name"), CASES, ids=[name for _, name in CASES])
def test_pythons_own(cases, name):
    case = type("Queue", (cases, unittest.TestCase), {})(name)
    result = unittest.TestResult()
    case.run(result)
    assert not result.failures, result.failures
    assert not result.errors, result.errors
    assert result.testsRun == 1
