"""The box benchmark's machinery: its figures must be those of the runs, and nothing left out."""

import io
import subprocess
import sys

import pytest
from rich.console import Console

from gristmill.bench import box, box_processes

RUNS = {
    "gristmill": [{"read": 20e-9, "pin": 1e-6}, {"read": 40e-9, "pin": 1e-6}, {"read": 30e-9, "pin": 1e-6}],
    "sharedbox": [],
    "multiprocessing": [{"read": 300e-9, "ask": 4e-5}],
    "memcpy": [],
}


def drawn(missing):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(box.table(RUNS, missing, 3))
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
    assert box.seconds_text(seconds) == text


def test_the_plot_is_drawn_also_where_a_contestant_has_no_figures(tmp_path):
    box.plot(RUNS, tmp_path / "box.png")
    assert (tmp_path / "box.png").read_bytes().startswith(b"\x89PNG")


def test_round_trips_answers_and_memory_are_measured_between_processes():
    trips = box_processes.round_trips(40)
    assert all(0 < row["p50"] <= row["p99"] for row in trips.values())
    memory = box_processes.resident_memory(workers=2, parameters=3_000_000)
    assert memory["workers pinned"] < 12e6 < memory["workers copied"]


def test_an_unknown_contestant_is_an_error():
    done = subprocess.run([sys.executable, str(box._DRIVER), "nobody"], capture_output=True, check=False)
    assert done.returncode != 0
