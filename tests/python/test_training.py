"""Whole runs: from the command line and from Python, to their end."""

import json
import os
import pty
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from running import SMALL, command, last_json, run, segments_of, workers_of, write_config

import gristmill as gm

RESULT_KEYS = {
    "frames", "wall_s", "fps", "launch_to_first_step_s", "mean_return", "solved", "solved_at_s",
    "policy_lag", "run_dir", "parameter_hash", "restarts", "error",
}  # fmt: skip


@pytest.fixture
def config(tmp_path):
    made = gm.Config(SMALL)
    made.run.dir = tmp_path / "runs"
    return made


def newest_run(folder):
    (run_dir,) = (folder / "runs").iterdir()
    return run_dir


def test_a_run_ends_at_its_frames_and_leaves_its_files(config):
    seen = []
    result = gm.train(config, on_metrics=seen.append)
    assert result.end == "frames"
    assert result.frames >= 4096
    assert result.fps > 0
    assert result.launch_to_first_step_s > 0
    assert result.policy_lag["max"] >= result.policy_lag["p50"] >= 0
    assert not result.solved
    assert result.solved_at_s is None
    assert seen[-1]["time/total_timesteps"] == result.frames
    files = {path.name for path in Path(result.run_dir).iterdir()}
    assert {"config.yaml", "checkpoints", "metrics.jsonl"} <= files
    assert any(name.startswith("events.out.tfevents.") for name in files)
    lines = [json.loads(line) for line in (Path(result.run_dir) / "metrics.jsonl").open()]
    assert lines[-1]["time/total_timesteps"] == result.frames
    assert {"time/fps", "train/approx_kl", "train/entropy_loss", "train/value_loss"} <= set(lines[-1])
    assert not segments_of(os.getpid())
    assert not workers_of(os.getpid())


def test_the_config_of_a_run_is_what_it_was_trained_with(config):
    result = gm.train(config, {"seed": 5, "run.name": "mine"})
    assert Path(result.run_dir).name == "mine"
    again = gm.Config.load(Path(result.run_dir) / "config.yaml")
    assert again.seed == 5
    with pytest.raises(gm.ConfigError, match="exists already"):
        gm.train(config, {"run.name": "mine"})


def test_the_command_line_prints_plain_lines_and_json(tmp_path):
    result = run("train", write_config(tmp_path, SMALL), "--json")
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    assert set(figures) >= RESULT_KEYS
    assert figures["frames"] >= 4096
    assert figures["error"] == ""
    assert Path(figures["run_dir"]) == newest_run(tmp_path)
    assert "\x1b" not in result.stderr
    assert "frames/s" in result.stderr


def test_without_json_people_read_stdout(tmp_path):
    result = run("train", write_config(tmp_path, SMALL), "--name", "named", "--stop-at-return", "1e9")
    assert result.returncode == 0, result.stderr
    assert "frames/s" in result.stdout
    assert "ended after" in result.stdout
    assert result.stderr == ""
    assert newest_run(tmp_path).name == "named"
    assert gm.Config.load(newest_run(tmp_path) / "config.yaml").train.stop_at_return == 1e9


def test_a_return_that_is_reached_ends_the_run_as_solved(config):
    result = gm.train(config, {"train.stop_at_return": 1, "train.total_frames": 10**9})
    assert result.end == "solved"
    assert result.solved
    assert result.mean_return >= 1
    assert result.solved_at_s > 0


def test_what_a_hook_raises_ends_the_run_in_order_and_comes_out(config):
    def fail(_metrics):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        gm.train(config, {"train.total_frames": 10**12}, on_metrics=fail)
    assert not segments_of(os.getpid())
    assert not workers_of(os.getpid())


def test_other_threads_run_during_train(config):
    ticks = []
    over = threading.Event()

    def tick():
        while not over.is_set():
            ticks.append(time.monotonic())
            over.wait(0.01)

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        begun = time.monotonic()
        gm.train(config)
        ended = time.monotonic()
    finally:
        over.set()
        ticker.join()
    during = [t for t in ticks if begun < t < ended]
    assert len(during) > 5


def test_synchronous_runs_repeat_to_the_last_bit(config):
    config.update({"learner.algorithm": "ppo", "seed": 3})
    hashes = {gm.train(config).parameter_hash for _ in range(2)}
    assert len(hashes) == 1
    assert gm.train(config, {"seed": 4}).parameter_hash not in hashes


@pytest.mark.parametrize("env_id", ["cartpole", "gymnasium:CartPole-v1"])
def test_synchronous_runs_of_two_workers_repeat_whatever_the_order_they_come_in(config, env_id):
    config.update({"learner.algorithm": "ppo", "env.id": env_id, "workers.count": 2})
    assert gm.train(config).parameter_hash == gm.train(config).parameter_hash


def test_a_process_that_has_used_torchs_threads_can_train(tmp_path):
    config = write_config(tmp_path, SMALL)
    code = f"""
import torch
torch.set_num_threads(4)
a = torch.rand(1000, 1000)
assert torch.isfinite((a @ a).relu().sum())
import gristmill as gm
result = gm.train({str(config)!r})
assert result.end == "frames" and result.frames >= 4096, result
assert torch.isfinite((a @ a).relu().sum())
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_only_its_owner_may_enter_a_runs_folder(config):
    run_dir = Path(gm.train(config).run_dir)
    assert run_dir.stat().st_mode & 0o777 == 0o700


def test_a_policy_acts_without_torchs_python_package(config):
    result = gm.train(config)
    policy = gm.load_policy(result.run_dir)
    assert policy.frames == result.frames
    assert policy.act([0.0, 0.0, 0.0, 0.0]) in (0, 1)
    actions = policy.act([[0.0, 0.0, 0.0, 0.0]] * 5)
    assert actions.shape == (5,)
    sampled = policy.act([[0.0, 0.0, 0.0, 0.0]] * 200, greedy=False)
    assert set(sampled.tolist()) == {0, 1}
    assert isinstance(policy.value([0.0, 0.0, 0.0, 0.0]), float)
    with pytest.raises(TypeError, match=r"expected float32 \[B, 4\]"):
        policy.act([[0.0, 0.0]])


def test_eval_plays_whole_episodes(config):
    result = gm.train(config)
    evaluation = gm.evaluate(result.run_dir, episodes=70, seed=1)
    assert len(evaluation.returns) == len(evaluation.lengths) == 70
    # CartPole's reward is one a step.
    assert evaluation.returns == [float(length) for length in evaluation.lengths]
    assert gm.evaluate(result.run_dir, episodes=70, seed=1).returns == evaluation.returns
    printed = run("eval", result.run_dir, "--episodes", 3, "--json")
    assert printed.returncode == 0, printed.stderr
    assert last_json(printed.stdout)["episodes"] == 3


def test_eval_records_a_film(config, tmp_path):
    pytest.importorskip("pygame")
    image = pytest.importorskip("PIL.Image")
    result = gm.train(config)
    film = tmp_path / "film.gif"
    printed = run(
        "eval",
        result.run_dir,
        "--episodes",
        1,
        "--video",
        film,
        env={**os.environ, "SDL_VIDEODRIVER": "dummy"},
    )
    assert printed.returncode == 0, printed.stderr
    with image.open(film) as picture:
        assert picture.n_frames > 5
    refused = run("eval", result.run_dir, "--video", tmp_path / "film.txt")
    assert refused.returncode == 2
    assert ".gif" in refused.stderr


def test_workers_that_raise_show_their_traceback(config):
    with pytest.raises(RuntimeError) as caught:
        gm.train(config, {"env.id": "gymnasium:NoSuchEnvironment-v0"})
    assert "NoSuchEnvironment" in str(caught.value)
    assert not segments_of(os.getpid())
    assert not workers_of(os.getpid())


def test_a_terminal_shows_live_figures_and_a_result(tmp_path):
    config = write_config(tmp_path, SMALL)
    terminal, inner = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "160"}
    process = subprocess.Popen(command("train", config), stdout=inner, stderr=inner, env=environment)
    os.close(inner)
    shown = b""
    try:
        while part := os.read(terminal, 4096):
            shown += part
    except OSError:
        pass  # the other side is closed: that is how a terminal ends
    finally:
        os.close(terminal)
        process.wait(60)
    text = shown.decode()
    assert process.returncode == 0, text
    assert "\x1b[" in text
    for word in ("frames/s", "return", "length", "lag", "queue", "ended after"):
        assert word in text
