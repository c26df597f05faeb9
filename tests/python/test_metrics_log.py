"""The files of figures: metrics.jsonl, and events as TensorBoard reads them."""

import json
import math
import subprocess
import sys
import time

import pytest
from running import read_events

from gristmill.metrics_log import MetricsLog
from gristmill.tensorboard_log import TensorBoardLog


def test_tensorboard_reads_every_value(tmp_path):
    events = TensorBoardLog(tmp_path)
    for step in (0, 127, 128, 5_000_000_000):
        events.add({"rollout/ep_rew_mean": step / 2, "time/fps": -1.5}, step)
    events.close()
    scalars = read_events(tmp_path)
    assert scalars["rollout/ep_rew_mean"] == [(0, 0), (127, 63.5), (128, 64), (5_000_000_000, 2.5e9)]
    assert [value for _, value in scalars["time/fps"]] == [-1.5] * 4


def test_the_log_writes_both_files_and_json_stays_json(tmp_path):
    log = MetricsLog(str(tmp_path), True, pytest.fail)
    log.write({"time/total_timesteps": 100.0, "train/explained_variance": math.nan, "time/fps": 5.0})
    log.write({"time/total_timesteps": 200.0, "time/fps": 6.0})
    log.close()
    lines = [json.loads(line, parse_constant=pytest.fail) for line in (tmp_path / "metrics.jsonl").open()]
    assert [line["time/fps"] for line in lines] == [5, 6]
    assert lines[0]["train/explained_variance"] is None
    assert read_events(tmp_path)["time/fps"] == [(100, 5), (200, 6)]


def test_figures_reach_tensorboard_while_the_run_goes_on(tmp_path):
    events = TensorBoardLog(tmp_path, patience_s=0)
    for step in range(50):
        events.add({"time/fps": step}, step)
    deadline = time.monotonic() + 60
    while len(read_events(tmp_path).get("time/fps", [])) < 50:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    events.close()


def test_a_short_run_imports_no_tensorboard_before_its_end(tmp_path):
    code = f"""
import sys
from gristmill.metrics_log import MetricsLog
log = MetricsLog({str(tmp_path)!r}, True, print)
log.write({{"time/fps": 1.0}})
assert "tensorboard" not in sys.modules
log.close()
assert "tensorboard" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert read_events(tmp_path)["time/fps"] == [(0, 1)]


def test_a_file_that_cannot_be_written_is_told_once_and_costs_nothing_else(tmp_path):
    warnings = []
    log = MetricsLog(str(tmp_path / "missing"), False, warnings.append)
    log.write({"time/fps": 1.0})
    log.write({"time/fps": 2.0})
    log.close()
    assert len(warnings) == 1
    assert warnings[0].startswith("metrics.jsonl no longer written: ")


def test_a_full_disk_is_told_once_with_its_reason(tmp_path):
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    warnings = []
    log = MetricsLog(str(tmp_path), False, warnings.append)
    for _ in range(3):
        log.write({"time/fps": 1.0})
    log.close()
    (warning,) = warnings
    assert warning.startswith("metrics.jsonl no longer written: ")
    assert "No space left on device" in warning


def test_what_tensorboard_cannot_write_is_told_and_leaves_the_other_file_alone(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.event_file_writer", None)
    warnings = []
    log = MetricsLog(str(tmp_path), True, warnings.append)
    log.write({"time/fps": 1.0})
    log.close()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 1
    (warning,) = warnings
    assert warning.startswith("TensorBoard's events no longer written: ")
