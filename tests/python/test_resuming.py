"""Runs that go on after they stopped, and checkpoints that cannot be used."""

import json
from pathlib import Path

import pytest
from running import SMALL, last_json, read_events, run

import gristmill as gm

COUNTERS = (
    "time/total_timesteps",
    "time/time_elapsed",
    "time/episodes",
    "train/n_updates",
    "train/version",
)


class Enough(Exception):  # noqa: N818
    """Raised by a hook to stop a run."""


@pytest.fixture
def config(tmp_path):
    made = gm.Config(SMALL)
    made.run.dir = tmp_path / "runs"
    return made


@pytest.fixture
def stopped(config):
    """The folder of a run that was stopped at a fifth of its frames, on a linear schedule."""
    config.update(
        {
            "train.total_frames": 200_000,
            "learner.schedule": "linear",
            "learner.learning_rate": 1e-3,
            "log.interval_s": 0.02,
            "run.name": "stopped",
        }
    )

    def stop(metrics):
        if metrics["time/total_timesteps"] > 40_000:
            raise Enough

    with pytest.raises(Enough):
        gm.train(config, on_metrics=stop)
    return Path(config.run.dir) / "stopped"


def metrics_of(run_dir):
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").open()]


def newest_checkpoint(run_dir):
    return max(path for path in (run_dir / "checkpoints").iterdir() if path.name[0].isdigit())


def test_resuming_continues_every_counter(stopped):
    before = metrics_of(stopped)[-1]
    result = gm.resume(stopped)
    assert Path(result.run_dir) == stopped
    assert result.end == "frames"
    lines = metrics_of(stopped)
    for counter in COUNTERS:
        values = [line[counter] for line in lines]
        assert values == sorted(values), counter
        # The first figures of the second launch: more than the last of the first.
        assert values[values.index(before[counter]) + 1] >= before[counter] > 0, counter
    last = lines[-1]
    assert result.frames == last["time/total_timesteps"] >= 200_000
    assert result.version == last["train/version"] > before["train/version"]
    assert result.episodes == last["time/episodes"] > before["time/episodes"]
    assert last["train/n_updates"] > before["train/n_updates"]
    assert last["time/time_elapsed"] > before["time/time_elapsed"]
    # One version for each update, and one for each launch's first parameters.
    assert last["train/version"] == last["train/n_updates"] + 2


def test_resuming_continues_the_schedule_and_tensorboards_axis(stopped):
    gm.resume(stopped)
    lines = metrics_of(stopped)
    rates = [
        (line["time/total_timesteps"], line["train/learning_rate"])
        for line in lines
        if line.get("train/learning_rate") is not None
    ]
    assert rates[0][0] < 40_000 < rates[-1][0]
    for frames, rate in rates:
        assert rate == pytest.approx(max(0, 1e-3 * (1 - frames / 200_000)), rel=1e-5, abs=1e-9)
    steps = [step for step, _ in read_events(stopped)["train/learning_rate"]]
    assert steps == [frames for frames, _ in rates]


def test_a_resumed_run_plays_other_episodes_than_the_first_launch(config):
    config.update({"learner.algorithm": "ppo", "train.total_frames": 4096})
    first = gm.train(config)
    again = gm.resume(first.run_dir, {"train.total_frames": 8192})
    whole = gm.train(config, {"train.total_frames": 8192})
    assert again.frames == whole.frames
    # The workers' random numbers are new ones, so the parameters are others.
    assert again.parameter_hash != whole.parameter_hash


def test_synchronous_runs_resume_to_the_same_parameters_twice(config):
    config.update({"learner.algorithm": "ppo", "train.total_frames": 4096})
    hashes = {
        gm.resume(gm.train(config).run_dir, {"train.total_frames": 8192}).parameter_hash for _ in range(2)
    }
    assert len(hashes) == 1


def test_resume_from_the_command_line(config):
    first = gm.train(config)
    result = run("resume", first.run_dir, "train.total_frames=8192", "--json")
    assert result.returncode == 0, result.stderr
    assert last_json(result.stdout)["frames"] >= 8192


def test_a_run_without_a_checkpoint_cannot_be_resumed_and_says_what_to_do(config):
    run_dir = Path(gm.train(config).run_dir)
    newest_checkpoint(run_dir).rename(run_dir / "elsewhere")
    refused = run("resume", run_dir)
    assert refused.returncode == 2
    assert "no checkpoint to resume from" in refused.stderr
    assert "gristmill train" in refused.stderr


def test_a_damaged_checkpoint_is_refused_and_the_one_before_offered(config):
    config.checkpoint.keep = 5
    run_dir = Path(gm.train(config).run_dir)
    first = newest_checkpoint(run_dir)
    gm.resume(run_dir, {"train.total_frames": 8192})
    damaged = newest_checkpoint(run_dir) / "model.safetensors"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)

    refused = run("resume", run_dir, "--json")
    assert refused.returncode == 1
    assert f"resume from the one before instead: {first}" in refused.stderr
    with pytest.raises(gm.CheckpointError, match=first.name):
        gm.load_policy(run_dir)
    assert gm.load_policy(first).frames < 8192
    assert gm.resume(first, {"train.total_frames": 8192}).frames >= 8192
