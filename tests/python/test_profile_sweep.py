"""`gristmill profile --sweep`: the grid, its table, and the fastest setting as a config."""

import json

import pytest
from running import run

from gristmill import _core
from gristmill.profiling import sweep

BASE = """
env: {id: synthetic}
workers: {count: 1, envs_per_worker: 8, unroll: 8}
queue: {capacity: 32}
learner: {algorithm: drain, batch_trajectories: 8, minibatch_trajectories: 8}
policy: {hidden_sizes: [8]}
"""


def test_values_are_split_outside_brackets():
    assert sweep.split_values("1,2,4") == ["1", "2", "4"]
    assert sweep.split_values("[64,64],[128]") == ["[64,64]", "[128]"]
    assert sweep.split_values("{a: 1, b: 2}") == ["{a: 1, b: 2}"]


@pytest.mark.parametrize(
    "word", ["workers.count", "workers.count=1,,2", "workers.cont=1,2", "workers.count=1,x", "workers.count="]
)
def test_a_wrong_axis_is_refused_before_anything_is_measured(word):
    with pytest.raises(_core.ConfigError):
        sweep.axes_of([word])


def test_an_axis_that_is_there_twice_and_a_grid_that_is_too_large_are_refused():
    with pytest.raises(_core.ConfigError, match="twice"):
        sweep.axes_of(["workers.count=1,2", "workers.count=3,4"])
    many = ",".join(map(str, range(1, 22)))
    with pytest.raises(_core.ConfigError, match="441 settings"):
        sweep.axes_of([f"workers.count={many}", f"workers.unroll={many}"])


def test_the_grid_is_measured_and_the_fastest_setting_written_as_a_config(tmp_path):
    config = tmp_path / "base.yaml"
    config.write_text(BASE)
    # 8 environments that sleep 1 ms each, or none: which is faster is known.
    slow, fast = "{step_us: 1000, sleep: true}", "{step_us: 0}"
    done = run(
        *("profile", config, "--seconds", "0.5", "--warmup", "0.1", "--json"),
        *("--sweep", f"env.kwargs={slow},{fast}", "queue.capacity=4,64"),
        *("--best", tmp_path / "best.yaml", "--html", tmp_path / "s.html", "--plot", tmp_path / "s.png"),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found["points"]) == 4
    # A queue of 4 does not hold a batch of 8: said, and the sweep goes on.
    errors = [point["error"] for point in found["points"] if point["settings"]["queue.capacity"] == "4"]
    assert all("does not hold" in error for error in errors)
    assert found["best"] == {"env.kwargs": fast, "queue.capacity": "64"}
    best = _core.load_config(str(tmp_path / "best.yaml"), []).values
    assert best["queue.capacity"] == 64
    assert json.loads(best["env.kwargs"]) == {"step_us": 0}
    assert "Fastest:" in (tmp_path / "s.html").read_text()
    assert (tmp_path / "s.png").stat().st_size > 1000
