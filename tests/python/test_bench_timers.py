"""`gristmill bench timers`: every contestant runs and agrees, and the targets are reckoned from the runs."""

import io
import json
import subprocess
import sys

import pytest
from rich.console import Console

from gristmill.bench import timers as bench
from gristmill.bench.train import last_json


def run(*arguments):
    command = [sys.executable, str(bench._DRIVER), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return last_json(done.stdout, "RESULT ")


def test_lazy_deletion_lengthens_heapq_and_nobody_else():
    # Longer than the time-out, so that heapq has come to its longest.
    case = (50, 10, 900)
    longest = {
        key: run(key, *case)["longest"]
        for key in ("gristmill", "gristmill-python", "heapq", "heapq-eager", "heapq-reheapify")
    }
    assert longest["gristmill"] == longest["gristmill-python"] == longest["heapq-eager"] == 50
    assert 5900 < longest["heapq"] <= 6051
    assert 50 < longest["heapq-reheapify"] <= 251


def test_timers_that_nobody_restarts_in_time_expire():
    # One restart a second among 1,000 timers of 600 s: those behind the 600th come too late, and from then on
    # one a second of those that were restarted 600 s ago.
    result = run("gristmill", 1000, 1, 700)
    assert result["expired"] == 400 + 100
    assert result["longest"] == 1000
    assert result["resident_bytes"] >= 0


def test_the_cost_of_a_restart_is_measured():
    costs = run("restart-cost", 1000, 0, 0)
    assert costs["in_turn_ns"] > 0
    assert costs["random_ns"] > 0


def made_up_case():
    case = bench.Case(1000, 100, 3600)
    for cpu in (0.002, 0.001, 0.009):
        case.runs["gristmill"].append({"cpu_s": cpu, "longest": 1000, "resident_bytes": 2**20})
    for cpu in (0.4, 0.1, 0.5):
        case.runs["heapq"].append({"cpu_s": cpu, "longest": 60001, "resident_bytes": 2**24})
    return case


def test_the_targets_are_of_medians():
    case = made_up_case()
    assert case.outcome() == {"cpu_ratio": pytest.approx(1 / 200), "cpu_met": True, "longest_met": True}
    case.runs["heapq"] = [{"cpu_s": 0.19, "longest": 60001, "resident_bytes": 0}]
    case.runs["gristmill"][0]["longest"] = case.runs["gristmill"][1]["longest"] = 1001
    assert case.outcome()["cpu_met"] is False
    assert case.outcome()["longest_met"] is False
    costs = {10: [{"in_turn_ns": 49.0, "random_ns": 400.0}], 20: [{"in_turn_ns": 51.0, "random_ns": 1.0}]}
    assert bench.restart_outcome(costs) == {"worst_ns": 51.0, "met": False}
    assert bench.Case(1, 1, 1).outcome() == {"cpu_ratio": None, "cpu_met": None, "longest_met": None}


def test_the_table_names_what_is_missing_and_why():
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(bench.table([made_up_case()], {"sortedcontainers": "no such wheel"}, 3))
    text = console.export_text()
    assert "missing: no such wheel" in text
    assert "200.0×" in text
    assert "0.0020 (0.0010 – 0.0090)" in text


def test_the_verdicts_and_the_plot_come_from_the_same_figures(tmp_path):
    costs = {1000: [{"in_turn_ns": 3.0, "random_ns": 5.0}], 10000: []}
    said = "\n".join(bench.lines([made_up_case()], costs))
    assert "1/200 of heapq's" in said
    assert "at most 3.0 ns" in said
    bench.plot([made_up_case()], costs, tmp_path / "timers.png")
    assert (tmp_path / "timers.png").read_bytes().startswith(b"\x89PNG")


def test_an_unknown_contestant_is_an_error():
    done = subprocess.run(
        [sys.executable, str(bench._DRIVER), "nobody", "1", "1", "1"], capture_output=True, check=False
    )
    assert done.returncode != 0
    assert json.dumps(bench.TITLES)
