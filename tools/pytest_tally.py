"""A pytest plugin that writes each test's outcome to $GRISTMILL_TALLY as it happens, one JSON object a line."""

import json
import os

_failed_in_call: set[str] = set()


def _write(test: str, outcome: str) -> None:
    with open(os.environ["GRISTMILL_TALLY"], "a") as file:
        file.write(json.dumps({"test": test, "outcome": outcome}) + "\n")


def pytest_collectreport(report):
    if report.failed:
        _write(report.nodeid, "failed")


def pytest_runtest_logstart(nodeid, location):
    _write(nodeid, "started")


def pytest_runtest_logreport(report):
    """One outcome a test: that of the call, or of the set-up or tear-down that failed."""
    if report.when == "call" or report.outcome != "passed":
        outcome = report.outcome
        if report.when == "teardown" and report.nodeid in _failed_in_call:
            return
        if outcome == "failed":
            _failed_in_call.add(report.nodeid)
        if report.when == "teardown" and outcome == "failed":
            # Its call was already counted as passed: the failure is one more.
            outcome = "failed"
        _write(report.nodeid, outcome)
