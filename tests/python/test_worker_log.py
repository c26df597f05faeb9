"""What workers log, warn and print: in the run's log.txt with their numbers, and told if it is grave."""

import io
import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from running import SMALL, run, segments_of, workers_of, write_config

import gristmill as gm
from gristmill import worker_log

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (DEBUG|INFO|WARNING|ERROR) (run|worker \d+): (.*)")


def options(kind="talk", **more):
    return {
        **SMALL,
        "workers.count": 1,  # whose frames tell that it has spoken
        "env.id": "gymnasium:chatty_environments:Chatty-v0",
        "env.kwargs": {"kind": kind, **more.pop("kwargs", {})},
        **more,
    }


@pytest.fixture(autouse=True)
def environments(monkeypatch):
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))
    yield
    assert not segments_of(os.getpid())
    assert not workers_of(os.getpid())


class Enough(Exception):  # noqa: N818
    pass


def read_log(folder):
    (run_dir,) = (folder / "runs").iterdir()
    log = run_dir / "log.txt"
    return log.read_text() if log.exists() else ""


@pytest.fixture
def train(tmp_path, caplog):
    caplog.set_level("DEBUG", logger="gristmill")

    def train(*arguments, until=None, **more):
        """until(log): ends the run as soon as this holds of its log."""
        config = gm.Config(options(*arguments, **more))
        config.run.dir = tmp_path / "runs"
        if until is not None:
            config.train.total_frames = 10**12
        figures = []

        def on_metrics(metrics):
            figures.append(metrics)
            if until is not None and until(read_log(tmp_path)):
                raise Enough

        try:
            gm.train(config, on_metrics=on_metrics)
        except Enough:
            pass
        return read_log(tmp_path), figures[-1]

    return train


def records(text):
    """(level, who, text) of each, continued lines joined."""
    joined = re.sub(r"\n    ", r"\\n", text)
    return [LINE.fullmatch(line).groups() for line in joined.splitlines()]


def test_all_that_workers_say_is_in_the_log_with_their_numbers(train, caplog, capfd):
    text, _ = train(
        until=lambda log: all(re.search(f"worker {w}: .*warned of", log) for w in (0, 1)),
        **{"workers.count": 2},
    )
    said = records(text)
    for worker in ("worker 0", "worker 1"):
        mine = [(level, line) for level, who, line in said if who == worker]
        for expected in (
            ("INFO", "printed, in a line"),
            ("WARNING", "printed to stderr"),
            ("INFO", "chatty: logged"),
            ("ERROR", "chatty: logged, grave"),
        ):
            assert mine.count(expected) == 1
        (traceback,) = [line for level, line in mine if level == "ERROR" and "with its traceback" in line]
        assert traceback.endswith("\\nZeroDivisionError: the wheel came off")
        (warned,) = [line for level, line in mine if level == "WARNING" and "warned of" in line]
        assert re.match(r".*chatty_environments\.py:\d+: UserWarning: warned of", warned)
        assert any(level == "INFO" and re.match("steps 8 environments", line) for level, line in mine)
        assert not any("in detail" in line for _, line in mine)
    assert {("INFO", "run")} <= {(level, who) for level, who, _ in said}
    told = [record for record in caplog.records if record.message.startswith("worker 0: ")]
    assert [(r.levelname, r.message) for r in told][:2] == [
        ("WARNING", "worker 0: printed to stderr"),
        ("ERROR", "worker 0: chatty: logged, grave"),
    ]
    assert all(record.levelno >= logging.WARNING for record in told)
    assert "printed" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("debug", {"DEBUG", "INFO", "WARNING", "ERROR"}),
        ("warning", {"WARNING", "ERROR"}),
        ("error", {"ERROR"}),
    ],
)
def test_the_level_is_an_option(train, level, expected):
    text, _ = train(**{"log.workers_level": level})
    assert {found for found, who, _ in records(text) if who != "run"} == expected


def test_off_leaves_the_workers_output_as_it_is(train, capfd):
    text, _ = train(**{"log.workers_level": "off"})
    assert not [who for _, who, _ in records(text) if who != "run"]
    written = capfd.readouterr()
    assert "printed, in a line" in written.out
    assert "printed to stderr" in written.err


def test_the_command_line_shows_warnings_with_the_workers_number(tmp_path):
    done = run("train", write_config(tmp_path, options()), "--json")
    assert done.returncode == 0, done.stderr
    assert "worker 0: printed to stderr\n" in done.stderr
    assert "printed, in a line" not in done.stderr + done.stdout
    assert json.loads(done.stdout)["end"] == "frames"


def test_a_worker_killed_while_it_logs_disturbs_nobody(train, tmp_path):
    once = tmp_path / "once"
    text, figures = train("kill", kwargs={"once": str(once)}, **{"train.total_frames": 20_000})
    assert figures["workers/restarts"] == 1
    assert figures["time/total_timesteps"] >= 20_000
    said = records(text)
    (death,) = [line for _, who, line in said if who == "run" and "killed by SIGKILL" in line]
    at = [line for _, _, line in said].index(death)
    assert any(who == "worker 0" and line == "printed, in a line" for _, who, line in said[at:])


def test_a_flood_is_dropped_counted_and_told(train, caplog):
    text, figures = train("flood", **{"train.total_frames": 40_000})
    lines = [line for _, who, line in records(text) if who != "run" and line.startswith("on and on")]
    (told,) = [line for _, who, line in records(text) if who == "run" and "were dropped" in line]
    dropped = int(told.split()[0])
    assert 0 < len(lines) < figures["time/total_timesteps"]
    assert figures["workers/log_dropped"] == dropped
    assert any("were dropped" in message for message in caplog.messages)


def test_a_run_that_never_began_leaves_no_log(tmp_path):
    config = gm.Config(options(kwargs={"misspelt": 1}))
    config.run.dir = tmp_path / "runs"
    with pytest.raises(RuntimeError, match="misspelt"):
        gm.train(config)
    assert not list((tmp_path / "runs").iterdir())


class Heard:
    """In place of a WorkerLog."""

    def __init__(self):
        self.said = []

    def say(self, level, text):
        self.said.append((level, text))


def test_lines_are_records():
    heard = Heard()
    lines = worker_log._Lines(heard, logging.INFO, None)
    assert lines.write("one\ntwo") == 7
    assert heard.said == [(20, "one")]
    print(" goes on", file=lines)
    print("", "  ", sep="\n", file=lines)
    lines.write("0%\r50%\r100%\r\n")
    assert [text for _, text in heard.said[1:]] == ["two goes on", "0%", "50%", "100%"]
    lines.write("x" * 40_000)
    assert len(heard.said[-1][1]) == 40_000
    lines.write("the last")
    lines._end()
    assert heard.said[-1] == (20, "the last")
    assert lines.writable()
    assert not lines.isatty()
    with pytest.raises(io.UnsupportedOperation):
        lines.fileno()


INSTALLS = """
import os, sys, subprocess
from gristmill import worker_log
worker_log.install(sys.argv[1], 5, "info")
worker_log.install(sys.argv[1] + "-of-another.board", 5, "info")  # has no log
print("before")
if os.fork() == 0:
    print("of a child")
    sys.exit()
os.wait()
subprocess.run(["echo", "of another program"], stdout=sys.stdout, check=True)
sys.stdout.buffer.write(b"bytes\\n")
sys.stdout.write("unended")
"""


def test_a_forked_child_and_other_programs_go_on_writing():
    name = gm.segment_name("test-worker-log", "board")
    # A log is any queue of its name.
    log = gm.Queue.__new__(gm.Queue)
    log._serialize_with("raw", None, None)
    log._create(name.rpartition(".")[0] + ".log", 0, 1 << 20, "drop_oldest")
    done = subprocess.run([sys.executable, "-c", INSTALLS, name], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    heard = [(*worker_log._HEAD.unpack(m[:16])[:2], m[16:].decode()) for m in log.get_many()]
    assert heard == [(5, 20, "before"), (5, 20, "of a child"), (5, 20, "unended")]
    assert sorted(done.stdout.splitlines()) == [b"bytes", b"of another program"]
