"""Sample Factory 2.1.1 trains CartPole on our queue, with one line of its code changed.

Not part of `make test`: Sample Factory lives in an environment of its own. `make peers` installs it, and
`pytest -m bench` runs this.
"""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

import gristmill
from gristmill.bench.peers import PEERS, default_folder

THEIRS = "from faster_fifo import Queue as MpQueue"
OURS = "from gristmill.compat.faster_fifo import Queue as MpQueue"
SOLVED = 475
LIMIT_S = 90

PEER = PEERS["sf"]
pytestmark = [
    pytest.mark.bench,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not PEER.installed(default_folder()),
        reason=f"{PEER.title} is not installed under {default_folder()}: run `make peers`",
    ),
]


def in_peer(arguments, folders=(), **environment):
    """Runs a command in Sample Factory's environment, with these folders first on its path."""
    return subprocess.run(
        arguments,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_S + 60,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def changed(tmp_path):
    """What to put on the path: a copy of signal_slot with that one line changed, and gristmill."""
    where = in_peer(
        [PEER.python(default_folder()), "-c", "import signal_slot; print(signal_slot.__path__[0])"]
    )
    shutil.copytree(where.stdout.strip(), tmp_path / "changed" / "signal_slot")
    file = tmp_path / "changed" / "signal_slot" / "queue_utils.py"
    text = file.read_text()
    assert text.count(THEIRS) == 1
    file.write_text(text.replace(THEIRS, OURS))
    # The package alone: the environment's own NumPy, torch and the like stay as they are.
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "gristmill").symlink_to(Path(gristmill.__file__).parent)
    return [tmp_path / "changed", tmp_path / "ours"]


def train(tmp_path, folders):
    """The benchmark's recipe; stops when it is solved."""
    done = in_peer(
        PEER.command(default_folder(), 0, tmp_path / "train"),
        folders,
        BENCH_LAUNCH=str(time.time()),
        BENCH_SECONDS="8",
        BENCH_LIMIT=str(LIMIT_S),
    )
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, (done.stdout + done.stderr)[-3000:]
    return json.loads(results[-1].removeprefix("RESULT "))


def test_it_uses_our_queue(changed):
    asks = "from signal_slot.queue_utils import get_queue; print(type(get_queue()).__module__)"
    said = in_peer([PEER.python(default_folder()), "-c", asks], changed)
    assert said.stdout.strip() == "gristmill.compat.faster_fifo", said.stderr


def test_it_solves_cartpole_on_our_queue_as_on_faster_fifo(tmp_path, changed, record_property):
    figures = {"gristmill": train(tmp_path, changed), "faster_fifo": train(tmp_path, [])}
    for name, figure in figures.items():
        record_property(name, json.dumps(figure))
        print(
            f"{name}: {SOLVED} reached after {figure['solved_at_s'] or float('nan'):.1f} s, mean return "
            f"{figure['mean_return']:.1f}, {figure['fps']:,.0f} frames/s"
        )
    for figure in figures.values():
        assert figure["solved_at_s"] is not None
        assert figure["mean_return"] >= SOLVED
