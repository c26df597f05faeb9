"""The benchmark's own machinery: its figures must be those of the runs, and nothing left out."""

import dataclasses
import io
import os
import sys
import time

import pytest
from rich.console import Console

from gristmill.bench import machine, peers, report, train


def contestant(key, *, ours, fps=(), solved=(), missing=""):
    runs = [
        {"fps": f, "solved_at_s": s, "launch_to_first_step_s": 0.5, "mean_return": 480.0}
        for f, s in zip(fps, solved, strict=True)
    ]
    return train.Contestant(key, f"{key} title", "settings", ours=ours, missing=missing, runs=runs)


OURS = contestant("ours", ours=True, fps=(100.0, 300.0, 200.0), solved=(2.0, 1.0, 3.0))
PEER = contestant("sf", ours=False, fps=(10.0, 20.0, 40.0), solved=(8.0, None, 12.0))
GONE = contestant("sb3", ours=False, missing="no such wheel")


def drawn(contestants, repeats):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(report.table(contestants, repeats))
    return console.export_text()


def test_ratios_are_of_medians_and_a_run_that_was_not_solved_counts_for_no_time():
    against = report.ratios([OURS, PEER])["ours"]["sf"]
    assert against["frames_per_s"] == pytest.approx(200 / 20)
    assert against["sooner"] == pytest.approx(10 / 2)


def test_a_peer_without_figures_has_no_ratio_instead_of_a_made_up_one():
    assert report.ratios([OURS, GONE])["ours"]["sb3"] == {"frames_per_s": None, "sooner": None}


def test_the_table_shows_median_and_spread_and_how_many_runs_reached_the_return():
    text = drawn([OURS, PEER], 3)
    assert "(100 – 300)" in text
    assert "(1.00 – 3.00)" in text
    row = next(line for line in text.splitlines() if "ours title" in line)
    assert "200" in row
    assert "2.00" in row
    assert "2 of 3" in text
    assert "10.0× frames/s" in text


def test_a_peer_that_cannot_be_installed_is_shown_as_missing_with_the_reason():
    text = drawn([OURS, GONE], 3)
    assert "sb3 title" in text
    assert "missing: no such wheel" in text


def test_a_failing_installation_is_reported_with_pips_reason(tmp_path):
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(str(tmp_path / "no-such-file.whl"))
    python = tmp_path / "peer" / "bin" / "python"
    python.parent.mkdir(parents=True)
    # torch is taken for installed: only the peer's own list is tried.
    python.write_text(f'#!/bin/sh\ncase "$*" in *torch==*) exit 0;; esac\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    peer = dataclasses.replace(peers.PEERS["sb3"], key="peer", requirements=requirements)
    with pytest.raises(peers.PeerMissingError, match="no-such-file"):
        peer.install(tmp_path)
    assert not peer.installed(tmp_path)


def test_a_changed_requirement_makes_an_installed_peer_stale(tmp_path):
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("a==1\n")
    peer = dataclasses.replace(peers.PEERS["sb3"], requirements=requirements)
    (tmp_path / peer.key).mkdir()
    (tmp_path / peer.key / ".stamp").write_text(peer._stamp())
    assert peer.installed(tmp_path)
    requirements.write_text("a==2\n")
    assert not peer.installed(tmp_path)


def test_every_peer_has_its_driver_and_pins_torch_first():
    for peer in peers.PEERS.values():
        assert peer.driver.exists()
        lines = [line for line in peer.requirements.read_text().splitlines() if not line.startswith("#")]
        assert all("==" in line for line in lines)
        assert (peers._TORCH in lines) == peer.torch


def test_a_run_that_outlives_its_limit_is_ended_with_all_its_children():
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open(sys.argv[1], 'w').write(str(child.pid)); time.sleep(600)\n"
    )
    read, write = os.pipe()
    with pytest.raises(train.RunFailedError, match="still running"):
        train.run_limited(
            [sys.executable, "-c", script, f"/proc/{os.getpid()}/fd/{write}"], 2, dict(os.environ)
        )
    child = int(os.read(read, 32))
    os.close(read)
    os.close(write)
    deadline = time.monotonic() + 10
    while _alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _alive(child)


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_run_that_fails_says_how_it_ended():
    command = [sys.executable, "-c", "print('the reason'); raise SystemExit(3)"]
    with pytest.raises(train.RunFailedError, match="exit code 3: the reason"):
        train.run_limited(command, 30, dict(os.environ))


def test_the_last_result_line_counts_and_a_missing_one_is_an_error():
    assert train.last_json('RESULT {"fps": 1}\nRESULT {"fps": 2}\nbye\n', "RESULT ") == {"fps": 2}
    with pytest.raises(train.RunFailedError, match="no result"):
        train.last_json("hello\n")


def test_the_plot_is_drawn_also_where_a_contestant_was_never_solved(tmp_path):
    never = contestant("never", ours=False, fps=(5.0,), solved=(None,))
    report.plot([OURS, PEER, never, GONE], tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_the_machine_is_described():
    described = machine.describe()
    assert described["cores"] >= 1
    assert described["memory"].endswith("GiB")
    assert str(described["cores"]) in machine.sentence()
