"""`gristmill profile`: what it measures, and that its sentence is right where the bottleneck is known."""

import itertools
import json
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from gristmill import _core
from gristmill.profiling import measure, text, trace
from gristmill.profiling.histogram import BOUNDS, mean, quantile
from gristmill.profiling.html import page

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

# An environment that sleeps needs no core: the tests' machine may have two.
SLEEPING = "env.kwargs={observation: [4], step_us: %s, sleep: true}"
BASE = [
    "env.id=synthetic",
    "workers.count=1",
    "workers.envs_per_worker=16",
    "workers.unroll=16",
    "queue.capacity=64",
    "learner.batch_trajectories=16",
    "learner.minibatch_trajectories=16",
    "learner.epochs=1",
    "learner.max_policy_lag=1000000",
]


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "profiled.yaml"
    path.write_text("seed: 1\n")
    return str(path)


def profiled(config, *overrides, seconds=2.0, trace_s=0.0):
    return measure.profile(config, [*BASE, *overrides], seconds, warmup=0.5, trace_s=trace_s)


def test_a_slow_environment_is_found(config):
    found = profiled(config, SLEEPING % 300)
    assert (found.diagnosis.bound, found.diagnosis.stage) == ("workers", "environment"), found.diagnosis
    assert found.whole.workers.share("environment") > 0.8
    stage = next(s for s in found.whole.workers.stages if s.name == "environment")
    # 16 environments of 300 µs each, one vector step; quantiles are to an eighth.
    assert 4.8e-3 * 0.85 < stage.p50_s < 4.8e-3 * 2


def test_a_slow_learner_is_found(config):
    found = profiled(config, "policy.hidden_sizes=[256, 256]", "learner.epochs=8")
    assert found.diagnosis.bound == "learner", found.diagnosis
    assert found.diagnosis.stage in ("forward", "loss", "backward")
    assert found.diagnosis.change == {"learner.epochs": 4}


def test_a_queue_that_is_too_small_is_found(config):
    small = [
        "workers.envs_per_worker=4",
        "workers.unroll=4",
        "queue.capacity=32",
        "learner.batch_trajectories=32",
        "learner.minibatch_trajectories=1",
        "policy.hidden_sizes=[128, 128]",
        "learner.epochs=4",
    ]
    # A worker as fast as the learner, whatever this machine makes of it: a batch takes 32 vector steps of 4.
    learner = profiled(config, *small, "queue.capacity=512", seconds=1.0)
    busy = 1 - learner.whole.learner.share("batch_wait")
    found = profiled(config, *small, SLEEPING % round(1e6 * busy / learner.whole.batches_per_s / 32 / 4, 1))
    assert found.diagnosis.bound == "queue", found.diagnosis
    assert found.diagnosis.change["queue.capacity"] >= 64


def test_parameters_that_are_too_large_are_found(config):
    found = profiled(
        config,
        "learner.algorithm=drain",
        "policy.hidden_sizes=[2048, 2048]",
        "workers.unroll=1",
        "learner.batch_trajectories=1",
        "learner.minibatch_trajectories=1",
    )
    assert (found.diagnosis.bound, found.diagnosis.stage) == ("parameters", "publish"), found.diagnosis


def test_shares_add_up_and_figures_agree_with_each_other(config):
    found = profiled(config, SLEEPING % 20)
    whole = found.whole
    for process in (whole.workers, whole.learner):
        assert 0.85 < sum(stage.share for stage in process.stages) < 1.05
    assert whole.frames_per_s == pytest.approx(whole.trajectories_per_s * 16, rel=0.01)
    assert whole.acted_per_s == pytest.approx(whole.frames_per_s, rel=0.25)
    assert 0 < quantile(whole.parameter_latency, 0.5) < 1e9
    assert whole.restarts == 0
    figures = json.loads(json.dumps(text.document(found)))
    assert figures["copies_per_trajectory"] == 1.0
    assert set(figures["learner"]["stages"]) == set(_core.stages(learner=True))


def test_a_batch_that_is_too_old_to_learn_from_is_charged_no_publish(config):
    found = profiled(config, "learner.algorithm=drain", "learner.max_policy_lag=0", seconds=1.0)
    counts = {stage.name: stage.count for stage in found.whole.learner.stages}
    learned = found.whole.batches_per_s * found.seconds
    # One batch may lie across each end of the measurement.
    assert abs(counts["publish"] - learned) <= 2
    taken = found.whole.trajectories_per_s * found.seconds / 16
    assert taken > learned * 1.2, "no batch was too old"


def test_counters_can_be_switched_off(config):
    found = profiled(config, "profile.counters=false", "learner.algorithm=drain", seconds=1.0)
    assert all(stage.seconds == 0 for stage in (*found.whole.workers.stages, *found.whole.learner.stages))
    assert found.whole.frames_per_s > 0


def test_the_trace_follows_trajectories_from_worker_to_learner(config, tmp_path):
    found = profiled(config, SLEEPING % 20, "workers.count=2", "queue.capacity=128", seconds=0.5, trace_s=0.6)
    path = tmp_path / "trace.json"
    trace.write(found.trace, path)
    document = json.loads(path.read_text())
    assert document["otherData"]["copies_per_trajectory"] == 1.0
    events = document["traceEvents"]
    names = {e["args"]["name"]: e["pid"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    assert sorted(names) == ["learner", "worker 0", "worker 1"]
    spans = [e for e in events if e["ph"] == "X"]
    for name, pid in names.items():
        mine = sorted((e["ts"], e["dur"]) for e in spans if e["pid"] == pid)
        assert len(mine) > 10, name
        for (begin, duration), (following, _) in itertools.pairwise(mine):
            assert begin + duration <= following + 0.01, f"{name} does one thing at a time"
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) > 5
    copies = [e for e in spans if e["name"] == "copy"]
    for number, start in starts.items():
        assert start["ts"] <= ends[number]["ts"]
        assert ends[number]["pid"] == names["learner"]
        inside = [
            c for c in copies if c["pid"] == start["pid"] and c["ts"] <= start["ts"] <= c["ts"] + c["dur"]
        ]
        assert len(inside) == 1
    # Every trajectory that was copied in was followed once: 16 at a put.
    assert all(flow.count <= 16 for flow in found.trace.flows)


def test_a_run_that_fails_says_why(config):
    with pytest.raises(measure.ProfileError, match="no option 'cost'"):
        profiled(config, "env.kwargs={cost: 1}")
    assert not [s for s in _core.list_segments() if s.dead]


def test_a_wrong_option_is_refused_before_anything_starts(config):
    with pytest.raises(_core.ConfigError, match="gama"):
        profiled(config, "learner.gama=0.9")


class _Links(HTMLParser):
    """What a page would load, and whether its tags match."""

    def __init__(self):
        super().__init__()
        self.loads, self.open = [], []

    def handle_starttag(self, tag, attributes):
        self.loads += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_opens_in_a_browser_without_a_network(config, tmp_path):
    hostile = tmp_path / "<img src=x onerror=alert(1)>.yaml"
    hostile.write_text("seed: 1\n")
    found = profiled(str(hostile), SLEEPING % 20, seconds=1.0, trace_s=0.4)
    written = page(found)
    links = _Links()
    links.feed(written)
    assert links.loads == []
    assert links.open == []
    assert "<img" not in written
    assert written.count("<svg") >= 6
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    path = tmp_path / "profile.html"
    path.write_text(written, encoding="utf-8")
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'chromium'}",
    ]
    done = subprocess.run(
        [*command, "--virtual-time-budget=3000", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    # Set by the last line of the page's script: nothing before it threw.
    assert 'data-ready="true"' in done.stdout
    assert "vector-effect" in done.stdout


def test_the_command_prints_a_table_and_the_sentence(config):
    words = ["profile", config, *BASE, "learner.algorithm=drain", "--seconds", "1", "--warmup", "0.2"]
    command = [sys.executable, "-c", "from gristmill.cli import main; main()", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for word in ("environment", "waiting for batches", "frames/s", "of 10 parts of the measurement agree"):
        assert word in " ".join(done.stdout.split())
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stdout)["frames_per_s"] > 0


def test_quantiles_are_right_to_an_eighth():
    values = np.exp(np.random.default_rng(1).normal(10, 2, 10_000)).astype(np.uint64)
    counts = np.histogram(values, [*BOUNDS, np.inf])[0]
    for q in (0.01, 0.5, 0.99):
        assert quantile(counts, q) == pytest.approx(np.quantile(values, q), rel=0.13)
    assert mean(counts) == pytest.approx(values.mean(), rel=0.13)
    assert np.isnan(quantile(np.zeros_like(counts), 0.5))


def test_small_whole_numbers_are_exact():
    counts = np.zeros(len(BOUNDS), np.int64)
    counts[[0, 2, 3]] = (5, 4, 1)
    assert [quantile(counts, q) for q in (0.4, 0.8, 1.0)] == [0, 2, 3]
