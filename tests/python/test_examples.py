"""Every example runs, as it is, in a process of its own: pytest -m examples."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gristmill

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
BUILD = ROOT / "build" / "release"

pytestmark = pytest.mark.examples


def play(name, *arguments, limit=110):
    # Elsewhere than the examples' own folder, as most users' scripts.
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=limit,
        stdin=subprocess.DEVNULL,
        cwd=arguments[0] if arguments and Path(arguments[0]).is_dir() else None,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_the_custom_learner_solves_cartpole():
    assert play("custom_learner.py").endswith("solved\n")
    assert len((EXAMPLES / "custom_learner.py").read_text().splitlines()) < 120


def test_the_custom_policy_replays_what_its_workers_did():
    assert play("custom_policy.py").count("replayed") == 5


def test_the_custom_environment_is_learned():
    assert "a step" in play("custom_env.py")


def test_the_queues_move_everything():
    assert "1000 messages, 20 batches of 50 trajectories, reward 16000" in play("queue_basics.py")


def test_the_box_is_followed():
    assert play("box_basics.py").count("learning rate 0.0001") == 2


def test_the_sweep_draws_its_curves(tmp_path):
    assert "curves.html" in play("sweep.py", tmp_path)
    assert (tmp_path / "learning-rates" / "curves.png").exists()


def _built(path):
    if not path.exists():
        pytest.skip(f"{path} is not built; make setup does it")
    return path


def test_the_environment_in_cpp_is_learned():
    assert "solved after" in play("cpp_env/run.py", _built(BUILD / "examples" / "cpp_env" / "catch.so"))


def test_the_training_in_cpp_runs():
    program = _built(BUILD / "examples" / "gristmill-train")
    worker = Path(gristmill.__file__).parent / "gristmill-worker"
    done = subprocess.run(
        [str(program), str(ROOT / "configs" / "cartpole.yaml"), "train.total_frames=20000"],
        env={**os.environ, "GRISTMILL_WORKER": str(worker)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_every_example_is_named_in_the_readme():
    readme = (ROOT / "README.md").read_text()
    shown = [*EXAMPLES.glob("*.py"), EXAMPLES / "cpp_env", EXAMPLES / "train.cc"]
    missing = [path.name for path in shown if f"examples/{path.name}" not in readme]
    assert not missing
