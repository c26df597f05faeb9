"""gm.sweep, and the learning curves of what it ran."""

import html.parser
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from running import SMALL, await_until, run, segments_of, workers_of

import gristmill as gm
from gristmill import curves

GRID = {"learner.gamma": [0.9, 0.99]}


def small_sweep(folder, seeds=2, **options):
    return gm.sweep(SMALL, GRID, seeds=seeds, dir=folder, **options)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    return folder, small_sweep(folder, parallel=2)


def test_every_setting_is_run_with_every_seed(swept):
    table = swept[1]
    settings = [(row["learner.gamma"], row["seed"], row["end"]) for row in table]
    assert settings == [(g, s, "frames") for g in (0.9, 0.99) for s in (0, 1)]
    for row in table:
        assert row["frames"] >= 4096
        assert row["policy_lag/max"] >= 0
        config = gm.Config.load(Path(row["run_dir"]) / "config.yaml")
        assert config.learner.gamma == row["learner.gamma"]
        assert config.seed == row["seed"]
    assert "0.99" in str(table)
    summary = table.summary()
    assert [row["runs"] for row in summary] == [2, 2]
    means = [row["mean_return/mean"] for row in summary]
    assert means == sorted(means, reverse=True)


def test_what_has_finished_is_not_run_again_and_more_seeds_are_added(swept):
    folder, before = swept
    ran = []
    assert small_sweep(folder, on_result=ran.append) == before
    assert ran == []
    more = small_sweep(folder, seeds=[0, 1, 5], on_result=ran.append)
    assert [(row["learner.gamma"], row["seed"]) for row in ran] == [(0.9, 5), (0.99, 5)]
    assert [row for row in more if row["seed"] != 5] == before


def test_another_base_configuration_is_another_run(swept):
    folder, before = swept
    other = {**SMALL, "policy": {"hidden_sizes": [8]}}
    table = gm.sweep(other, [{"learner.gamma": 0.9}], seeds=1, dir=folder)
    assert table[0]["run_dir"] not in [row["run_dir"] for row in before]


def test_a_run_that_fails_is_a_row_and_is_tried_again(tmp_path):
    settings = [{"env.id": "gymnasium:NoSuchThing-v0"}, {"env.id": "cartpole"}]
    for _ in range(2):
        ran = []
        table = gm.sweep(SMALL, settings, seeds=1, dir=tmp_path, on_result=ran.append)
        assert [row["end"] for row in table] == ["failed", "frames"]
        assert "NoSuchThing" in table[0]["error"]
        assert ran[0]["env.id"] == "gymnasium:NoSuchThing-v0"
    assert len(ran) == 1
    assert table.summary()[-1]["failed"] == 1


def test_wrong_settings_are_refused_before_anything_starts(tmp_path):
    with pytest.raises(gm.ConfigError, match=r"learner\.gama"):
        gm.sweep(SMALL, {"learner.gama": [0.9]}, dir=tmp_path / "none")
    with pytest.raises(gm.ConfigError, match="expected a list of values"):
        gm.sweep(SMALL, {"learner.gamma": 0.9}, dir=tmp_path / "none")
    with pytest.raises(ValueError, match="parallel"):
        gm.sweep(SMALL, GRID, parallel=0, dir=tmp_path / "none")
    assert not (tmp_path / "none").exists()


SCRIPT = """
import sys
import gristmill as gm
from running import SMALL
config = {**SMALL, "train": {"total_frames": int(sys.argv[2])}}
try:
    gm.sweep(config, {"learner.gamma": [0.9]}, seeds=2, parallel=2, dir=sys.argv[1])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_an_interrupted_sweep_ends_its_runs_and_goes_on_where_they_were(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path), str(10**12)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        folder = tmp_path / "sweep"
        await_until(lambda: len(list(folder.glob("*/metrics.jsonl"))) == 2, "both runs learn")
        children = [
            int(stat.parent.name)
            for stat in Path("/proc").glob("[0-9]*/stat")
            if _parent(stat) == process.pid
        ]
        assert len(children) == 2
        os.kill(process.pid, signal.SIGINT)
        assert process.communicate(timeout=60)[0] == "interrupted\n"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not any(workers_of(child) or segments_of(child) for child in children)
    assert len(list(folder.glob("*/checkpoints/*"))) == 2
    assert not list(folder.glob("*.result.json"))

    # The same sweep again goes on from there; so that it ends, to a number of frames that is reached already.
    for config in folder.glob("*/config.yaml"):
        config.write_text(config.read_text().replace("1000000000000", "4096"))
    ran = []
    endless = {**SMALL, "train": {"total_frames": 10**12}}
    table = gm.sweep(endless, {"learner.gamma": [0.9]}, seeds=2, dir=tmp_path, on_result=ran.append)
    assert [row["end"] for row in table] == ["frames", "frames"]
    assert all(row["frames"] >= 4096 for row in ran)


def _parent(stat):
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1


def made_run(folder, name, seed, points, gamma=0.9, **values):
    path = folder / name
    path.mkdir(parents=True)
    config = gm.Config({"learner.gamma": gamma, "seed": seed, **values})
    (path / "config.yaml").write_text(config.to_yaml())
    lines = [
        {"wall_time": 100.0 + i, "time/total_timesteps": x, "rollout/ep_rew_mean": y}
        for i, (x, y) in enumerate(points)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_runs_that_differ_in_their_seeds_are_one_curve_with_mean_and_spread(tmp_path):
    made_run(tmp_path, "a", 0, [(0, 0), (100, 10)])
    made_run(tmp_path, "b", 1, [(0, 2), (200, 22)])
    made_run(tmp_path, "c", 0, [(0, 5), (50, 6)], gamma=0.99)
    groups = curves.grouped([curves.read_curve(path) for path in curves.find_runs([tmp_path])])
    assert [(group.label, len(group.curves)) for group in groups] == [
        ("learner.gamma = 0.9", 2),
        ("learner.gamma = 0.99", 1),
    ]
    x, mean, deviation = groups[0].band()
    assert (x[0], x[-1]) == (0, 100)  # as far as both have come
    np.testing.assert_allclose([mean[0], mean[-1]], [1, 11])
    np.testing.assert_allclose(deviation, 1)


def test_runs_that_differ_in_much_are_labelled_by_their_names(tmp_path):
    much = {"learner.epochs": 7, "workers.count": 5, "workers.unroll": 3, "queue.capacity": 1000}
    made_run(tmp_path, "one", 0, [(0, 0), (100, 10)])
    made_run(tmp_path, "other", 0, [(0, 2), (200, 22)], gamma=0.5, **much)
    groups = curves.grouped([curves.read_curve(path) for path in curves.find_runs([tmp_path])])
    assert [group.label for group in groups] == ["one", "other"]


def test_what_a_resumed_run_did_twice_counts_once(tmp_path):
    run_folder = made_run(tmp_path, "a", 0, [(0, 0), (10, 1), (20, 2), (10, 5), (30, 6)])
    with (run_folder / "metrics.jsonl").open("a") as file:
        file.write('{"wall_time": 12')  # cut off by a crash
    curve = curves.read_curve(run_folder)
    assert curve.x.tolist() == [0, 10, 30]
    assert curve.y.tolist() == [0, 5, 6]
    assert curves.read_curve(run_folder, x="seconds").x.tolist() == [0, 1, 2, 3, 4]


class _Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.sources, self.text = [], [], ""

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.sources += [value for name, value in attributes if name in ("src", "href")]

    def handle_data(self, data):
        self.text += data


def test_the_command_writes_a_picture_and_a_page_that_needs_nothing_else(tmp_path):
    made_run(tmp_path / "runs", "<script>alert(1)</script> $x", 0, [(0, 0), (100, 10)])
    made_run(tmp_path / "runs", "_plain", 0, [(0, 0), (100, math.pi)], gamma=0.5)
    done = run("plot", tmp_path / "runs", "--out", tmp_path / "curves")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    page = _Page()
    page.feed((tmp_path / "curves.html").read_text())
    assert "script" not in page.tags
    assert "<script>alert(1)</script> $x" in page.text
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert len(page.sources) == 1
    assert run("plot", tmp_path / "nothing").returncode == 2
    wrong = run("plot", tmp_path / "runs", "--metric", "rollout/nothing")
    assert wrong.returncode == 2
    assert "rollout/ep_rew_mean" in wrong.stderr
