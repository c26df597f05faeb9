"""Our event files, read by TensorBoard."""

import json
import math

import pytest

from gristmill.metrics_log import MetricsLog
from gristmill.tensorboard_events import EventFile


def read_events(folder):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    accumulator = accumulators.EventAccumulator(str(folder))
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


def test_tensorboard_reads_every_value(tmp_path):
    events = EventFile(tmp_path)
    for step in (0, 127, 128, 5_000_000_000):
        events.add_scalars({"rollout/ep_rew_mean": step / 2, "time/fps": -1.5}, step)
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


def test_a_file_that_cannot_be_written_is_told_once_and_costs_nothing_else(tmp_path):
    warnings = []
    log = MetricsLog(str(tmp_path / "missing"), True, warnings.append)
    log.write({"time/fps": 1.0})
    log.write({"time/fps": 2.0})
    log.close()
    assert len(warnings) == 1
    assert "no longer written" in warnings[0]
