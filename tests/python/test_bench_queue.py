"""`gristmill bench queue`: what it compares, its ratios, and its driver on our own queue."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gristmill.bench import queue as bench
from gristmill.bench.train import last_json

DRIVER = Path(bench.__file__).parent / "drivers" / "run_queue.py"


def run(*arguments):
    done = subprocess.run([sys.executable, DRIVER, *arguments], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return last_json(done.stdout, "RESULT ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("table", "gristmill", "2", "3", "1000", "1"),
        ("table", "gristmill", "2", "3", "1000", "0"),
        ("table", "multiprocessing", "1", "2", "100", "0"),
        ("stream", "gristmill", "10000", "1", "1"),
        ("stream", "gristmill", "10000", "0", "0"),
        ("bandwidth", "gristmill", "65536", "50", "1"),
        ("bandwidth", "gristmill", "65536", "50", "0"),
        ("bandwidth", "memcpy", "65536", "50", "0"),
        ("bandwidth", "memcpy-2", "65536", "50", "0"),
        ("table", "gristmill", "2", "3", "1000", "100"),
        ("round-trip", "gristmill", "100"),
        ("ping-pong", "gristmill", "100"),
    ],
)
def test_every_case_runs_and_gives_its_figure(arguments):
    key = {"table": "seconds", "round-trip": "p50_us", "ping-pong": "p50_us"}.get(arguments[0], "per_s")
    assert run(*arguments)[key] > 0


def test_the_whole_table_is_there():
    tests = bench.all_tests(1)
    assert len(tests) == 6 + 1 + 4 + 2
    for test in tests:
        titles = {contestant.title for contestant in test.contestants}
        for ours, against, at_least in test.targets:
            assert {ours, *against} <= titles
            assert at_least > 0
    assert json.dumps([test.title for test in tests])


def test_ratios_are_of_medians_against_the_best_peer():
    test = bench.all_tests(1)[0]
    for contestant, runs in zip(
        test.contestants, ([0.1, 0.2, 9], [0.15], [0.5], [4.0], [2.0], []), strict=True
    ):
        contestant.runs = runs
    first, second = test.outcomes()
    assert first["ratio"] == pytest.approx(10)
    assert first["met"]
    assert second["ratio"] == pytest.approx(4)
    assert not second["met"]
    rates = next(test for test in bench.all_tests(1) if test.key == "per_s")
    for contestant, runs in zip(rates.contestants, ([6.0], [6.0], [2.0], [1.0], [1.0]), strict=True):
        contestant.runs = runs
    assert [outcome["met"] for outcome in rates.outcomes()] == [True, False]


def test_promised_figures_are_found_in_what_the_core_bench_prints():
    text = "one process\n  put one  get many    23.4\nbetween\n   1 x  1 put one  get many     9.50\n"
    assert bench.core_outcomes(text) == [
        "put and get_many of 22 bytes in one process: 23.4 ns, at most 25: met",
        "two processes: 9.5 M messages/s, at least 10: missed",
    ]
    assert all(line.endswith("not measured") for line in bench.core_outcomes(""))


@pytest.mark.parametrize(
    ("cache", "counts"),
    [("A:B=c\nCMAKE_BUILD_TYPE:STRING=Release\n", True), ("A:B=c\nCMAKE_BUILD_TYPE:STRING=Debug\n", False)],
)
def test_the_core_figures_are_a_release_builds(tmp_path, cache, counts):
    assert not bench._is_release(tmp_path)
    (tmp_path / "CMakeCache.txt").write_text(cache)
    assert bench._is_release(tmp_path) == counts
