"""The fault campaign: it finds nothing where nothing is wrong, and every mistake that is made on purpose."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from running import run

import gristmill as gm
from gristmill.soak import peers, primitives, report
from gristmill.soak.findings import PartResult

CORE = Path(__file__).resolve().parents[2] / "core"


def soak(*words, limit_s=90):
    """gristmill-soak's exit code, rounds and summary. The machine may be busy: stalls have no limit."""
    done = subprocess.run(
        [primitives.executable(), "--die-with-parent", "--stall-limit-ms", "60000", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=limit_s,
        stdin=subprocess.DEVNULL,
    )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, events[:-1], events[-1]


def findings_of(summary):
    kinds = {}
    for part in summary["parts"].values():
        for kind, count in part["findings"].items():
            kinds[kind] = kinds.get(kind, 0) + count
    return {kind: count for kind, count in kinds.items() if count}


def texts_of(rounds):
    return [text for one in rounds for text in one["texts"]]


@pytest.mark.parametrize("part", primitives.PARTS)
def test_kills_and_stops_cost_nothing_that_was_acknowledged(part):
    code, rounds, summary = soak("--only", part, "--rounds", 2, "--round-ms", 1200, "--seed", 7)
    assert (code, texts_of(rounds)) == (0, [])
    assert summary["kills"] > 20
    assert summary["parts"][part]["measures"]["acknowledged"] > 0


# Which findings a mistake may have, and in which parts it can be made.
MISTAKES = {
    "drop": ({"lost", "doubled", "torn", "disordered", "damaged"}, ("queue", "trajectories", "box")),
    "duplicate": ({"doubled", "lost"}, ("queue", "trajectories", "box")),
    "flip": ({"damaged", "torn", "lost"}, ("queue", "trajectories", "box")),
    "reorder": ({"disordered", "torn", "doubled"}, ("queue", "trajectories", "box")),
    "leak": ({"shrunk", "hung", "broken"}, ("queue", "box")),
    "hang": ({"hung"}, ("queue", "trajectories", "box")),
    "crash": ({"broken"}, ("queue", "trajectories", "box")),
    "no-recovery": ({"hung", "shrunk", "lost", "broken", "stalled"}, ("queue", "trajectories", "box")),
}


@pytest.mark.parametrize(("mistake", "part"), [(m, part) for m in MISTAKES for part in MISTAKES[m][1]])
def test_a_mistake_made_on_purpose_is_found(mistake, part):
    expected, _ = MISTAKES[mistake]
    code, rounds, summary = soak(
        *("--only", part, "--rounds", 4, "--round-ms", 500, "--stop-at-first"),
        *("--seed", 5, "--mistake", mistake),
    )
    found = findings_of(summary)
    assert code == 1, found
    assert set(found) & expected, found
    assert texts_of(rounds)
    assert all(re.fullmatch(r"--seed 5 --round \d+", one["again"]) for one in rounds)


def test_a_long_stall_is_found():
    done = subprocess.run(
        [primitives.executable(), "--only", "queue", "--round", "0", "--mistake", "stall"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "stalled" in done.stdout


def test_every_fault_point_of_the_primitives_is_there_to_be_armed():
    points = primitives.fault_points()
    parts = {"message_": "queue", "trajectory_": "trajectories", "box": "box", "segment": "segments"}
    for prefix, part in parts.items():
        for path in [*CORE.glob(prefix + "*.cc"), *CORE.glob(prefix + "*.h")]:
            for point in re.findall(r'GRISTMILL_FAULT_POINT\("([^"]+)"\)', path.read_text()):
                assert points[point] == part, f"{point} of {path.name}"


def test_unknown_options_and_parts_are_refused_by_name():
    for words in (["--only", "kettle"], ["--seconds", "-3"], ["--bogus", "1"], ["--mistake", "sloth"]):
        done = subprocess.run([primitives.executable(), *words], capture_output=True, text=True, timeout=20)
        assert done.returncode == 2
        assert words[1] in done.stderr or words[0] in done.stderr


def test_an_interrupted_campaign_leaves_no_process_and_no_segment():
    process = subprocess.Popen(
        [primitives.executable(), "--seconds", "60", "--only", "queue"], stdout=subprocess.PIPE, text=True
    )
    process.stdout.readline()  # a round is over, and the next begun
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    process.stdout.close()
    assert [s.name for s in gm.list_segments() if ".soak-" in s.name and s.dead] == []


def test_the_command_plays_a_campaign_and_writes_what_it_found(tmp_path):
    done = run(
        *("soak", "--minutes", "0.05", "--only", "queue,box", "--seed", "3", "--stall-limit-ms", "60000"),
        *("--json", tmp_path / "soak.json", "--markdown", tmp_path / "soak.md"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads((tmp_path / "soak.json").read_text())
    assert figures["violations"] == 0
    assert figures["kills"] == sum(part["kills"] for part in figures["parts"].values()) > 0
    text = (tmp_path / "soak.md").read_text()
    assert "| **acknowledged, and lost** | **0** |" in text
    assert f"{figures['kills']:,} kills" in text


def test_the_command_fails_and_says_how_to_repeat_what_it_found(tmp_path):
    done = run(
        *("soak", "--only", "queue", "--seed", "5", "--round", "0", "--mistake", "duplicate"),
        *("--json", tmp_path / "soak.json"),
    )
    assert done.returncode == 1
    assert "gristmill soak --seed 5 --round 0" in re.sub(r"\s+", " ", done.stdout + done.stderr)
    assert json.loads((tmp_path / "soak.json").read_text())["parts"]["queue"]["findings"]["doubled"] > 0


@pytest.mark.skipif(os.environ.get("GRISTMILL_SOAK_TRAINING") == "0", reason="asked not to")
def test_a_training_run_whose_processes_are_killed_and_stopped_still_solves(tmp_path):
    done = run(
        *("soak", "--minutes", "0", "--only", "training", "--seed", "2", "--round", "0"),
        *("--json", tmp_path / "soak.json"),
    )
    part = json.loads((tmp_path / "soak.json").read_text())["parts"]["training"]
    assert done.returncode == 0, part["texts"]
    assert part["measures"]["solved"] == part["measures"]["rounds"] == 1
    assert part["kills"] > 0


def test_peers_tables_count_hangs_and_losses():
    trials = [
        peers.Trials(
            "queue",
            "gristmill",
            "c",
            {"trials": 3, "hung": 0, "lost_in": 0, "lost": 0, "doubled": 0, "damaged": 0},
        ),
        peers.Trials(
            "queue",
            "faster-fifo",
            "c",
            {"trials": 3, "hung": 2, "lost_in": 1, "lost": 70, "doubled": 0, "damaged": 1},
        ),
        peers.Trials("queue", "multiprocessing", "c", missing="no such thing"),
        peers.Trials("box", "sharedbox", "w", {"trials": 3, "blocked": 3, "torn": 2}),
    ]
    assert trials[0].violations == 0
    assert trials[1].violations > 0
    text = peers.markdown(trials)
    assert "2 hung, 1 lost something (70), 1 damaged, of 3" in text
    assert "missing: no such thing" in text
    assert "3 blocked, 2 torn, of 3" in text


def test_our_queue_and_box_stand_the_peers_trials():
    for words, bad in (
        (["queue", "gristmill", "producer", "65536", "2", "1"], ("hung", "lost", "doubled", "damaged")),
        (["queue", "gristmill", "consumer", "1024", "2", "1"], ("hung", "lost", "doubled", "damaged")),
        (["box", "gristmill", "1000000", "2", "1"], ("blocked", "torn")),
    ):
        done = subprocess.run(
            [sys.executable, str(peers._DRIVER), *words], capture_output=True, text=True, timeout=100
        )
        result = json.loads(done.stdout.split("RESULT ")[1])
        assert {key: result[key] for key in bad} == dict.fromkeys(bad, 0)


def test_the_table_adds_up_over_parts():
    one = PartResult("queue", faults={"producer": {"killed at random": 3, "stopped at random": 1}})
    two = PartResult("box", faults={"writer": {"killed at random": 4}}, findings={"torn": 2})
    rows = {label: cells for label, *cells in report.rows([one, two])}
    assert rows["kill -9 at random"] == ["3", "4", "7"]
    assert rows["KILLS"] == ["3", "4", "7"]
    assert rows["STOPS"] == ["1", "0", "1"]
    assert rows["TORN READS"] == ["0", "2", "2"]
    assert two.violations == 2
