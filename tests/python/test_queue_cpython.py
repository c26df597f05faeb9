"""CPython's own tests of multiprocessing.Queue, from its test package, run against gristmill.Queue."""

import multiprocessing
import unittest

import pytest

import gristmill as gm

# Python's distributions for users leave the package out.
theirs = pytest.importorskip("test._test_multiprocessing")


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
        with pytest.raises(theirs.pyqueue.Empty):
            q.get(True, 0.2)

    # Of JoinableQueue, of the feeder thread, and of multiprocessing's own module.
    test_task_done = None
    test_queue_feeder_on_queue_feeder_error = None
    test_no_import_lock_contention = None


NAMES = [
    name
    for name in unittest.TestLoader.getTestCaseNames(unittest.TestLoader(), _QueueTests)
    if getattr(_QueueTests, name) is not None
]


@pytest.mark.parametrize("name", NAMES)
def test_multiprocessings_own(name):
    case = type("Case", (_QueueTests, unittest.TestCase), {})(name)
    result = unittest.TestResult()
    case.run(result)
    assert not result.failures, result.failures
    assert not result.errors, result.errors
    assert result.testsRun == 1
