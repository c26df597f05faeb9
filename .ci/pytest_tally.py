"""A pytest plugin that writes each test's outcome to $GRISTMILL_TALLY as it happens, one JSON object a line.

As pytest itself counts, a test whose tear-down fails too is one outcome more.
"""

import json
import os


def _write(test: str, outcome: str) -> None:
    with open(os.environ["GRISTMILL_TALLY"], "a") as file:
        file.write(json.dumps({"test": test, "outcome": outcome}) + "\n")


def pytest_collectreport(report):
    if report.failed:
        _write(report.nodeid, "failed")


def pytest_runtest_logstart(nodeid, location):
    _write(nodeid, "started")


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        _write(report.nodeid, report.outcome)
