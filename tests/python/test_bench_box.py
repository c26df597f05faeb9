"""The box benchmark's machinery: its figures must be those of the runs, and nothing left out."""

import importlib
import io
import subprocess
import sys

import pytest
from rich.console import Console

from gristmill.bench import box, box_processes, box_report

RUNS = {
    "gristmill": [{"read": 20e-9, "pin": 1e-6}, {"read": 40e-9, "pin": 1e-6}, {"read": 30e-9, "pin": 1e-6}],
    "sharedbox": [],
    "multiprocessing": [{"read": 300e-9, "ask": 4e-5}],
    "memcpy": [],
}


def drawn(missing):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(box_report.table(RUNS, missing, 3))
    return console.export_text()


def test_the_table_shows_median_spread_and_the_ratio_to_the_best_other():
    text = drawn({})
    row = next(line for line in text.splitlines() if line.startswith("│ read"))
    assert "30 ns" in row
    assert "300 ns" in row
    assert "0.10" in row
    assert "(20 ns – 40 ns)" in text
    assert any(line.startswith("│ ask") and "40 µs" in line for line in text.splitlines())


def test_a_peer_that_is_missing_is_named_with_the_reason():
    assert "missing: no such wheel" in drawn({"sharedbox": "no such wheel"})


@pytest.mark.parametrize(
    ("seconds", "text"), [(2e-8, "20 ns"), (1.5e-5, "15 µs"), (0.0042, "4.2 ms"), (2.0, "2 s")]
)
def test_seconds_are_written_in_the_unit_that_fits(seconds, text):
    assert box_report.seconds_text(seconds) == text


ROUNDS = [
    {
        "watchers": {
            "gristmill": {"0": 1e-7, "8": 4e-6 * k},
            "sharedbox": {"0": 1e-6, "8": 9e-5},
        },
        "reader": {
            "gristmill": {
                "reads": 100,
                "time-outs": 0,
                "torn": 0,
                "memcpy": 1e-3,
                "p50": 1e-3,
                "p99": 4e-3 * k,
                "seconds": 3,
            }
        },
        "writer killed": {"sharedbox": {"kills": 6, "blocked": 5, "torn": 4, "longest stall": 1.0}},
        "contention": {"2 × 0": {"gristmill writes/s": 3e6 * k, "gristmill reads/s": 0.0}},
        "round_trips": {"mp.Pipe": {"p50": 6e-5, "p99": 9e-5}},
        "round trip": {"sharedbox": {"watch, asleep": {"p50": 7e-5, "p99": 1e-4}}},
        "published_to_usable": {"100 MiB": {"pinned": 1e-5, "copied": 5e-3}},
    }
    for k in (1, 2, 3)
]
MEMORY = {"box": 4e8, "workers pinned": 0.0, "workers copied": 4e8}


def test_the_plot_is_drawn_also_where_a_contestant_has_no_figures(tmp_path):
    box_report.plot(RUNS, ROUNDS, tmp_path / "box.png")
    assert (tmp_path / "box.png").read_bytes().startswith(b"\x89PNG")


def test_lines_give_the_median_and_the_spread_of_the_rounds_and_add_up_what_is_counted():
    text = "\n".join(box_report.lines(ROUNDS, MEMORY))
    assert "gristmill: 0 100 ns (100 ns – 100 ns), 8 8 µs (4 µs – 12 µs)" in text
    assert "gristmill: 300 reads in 9 s, 0 time-outs, 0 torn" in text
    assert "8.0 memcpys" in text
    assert "sharedbox: others blocked in 15 of 18, torn in 12" in text
    assert "2 × 0: gristmill writes 6.00 M (3.00 – 9.00)" in text
    assert "sharedbox, watch, asleep: p50 70 µs" in text
    assert "100 MiB: pinned 10 µs" in text


def test_round_trips_answers_and_memory_are_measured_between_processes():
    trips = box_processes.round_trips(40)
    assert all(0 < row["p50"] <= row["p99"] for row in trips.values())
    memory = box_processes.resident_memory(workers=2, parameters=3_000_000)
    assert memory["workers pinned"] < 12e6 < memory["workers copied"]


def test_nothing_is_torn_or_blocked_when_a_writer_is_killed(monkeypatch):
    monkeypatch.syspath_prepend(str(box._SHARED_DRIVER.parent))
    driver = importlib.import_module(box._SHARED_DRIVER.stem)
    peer = driver.Gristmill()
    died = driver.writer_killed(peer, 3)
    assert (died["kills"], died["blocked"], died["torn"]) == (3, 0, 0)
    read = driver.reader(peer, 0.3)
    assert (read["time-outs"], read["torn"]) == (0, 0)
    assert read["reads"] > 0


def test_an_unknown_contestant_is_an_error():
    done = subprocess.run([sys.executable, str(box._DRIVER), "nobody"], capture_output=True, check=False)
    assert done.returncode != 0
