"""The box's protocol, checked exhaustively by spin: every interleaving, with death at every step.

A model that found nothing would prove nothing: each mistake that is seeded (#ifdef BUG_…) must be found.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

MODELS = Path(__file__).resolve().parents[1] / "model"
pytestmark = pytest.mark.skipif(
    not (shutil.which("spin") and shutil.which("gcc")),
    reason="spin (apt-get install spin) or gcc is not here",
)


def bugs(model):
    return sorted(set(re.findall(r"\bBUG_[A-Z_]+", (MODELS / model).read_text())))


SOUND = [
    ("box_scalars.pml", []),
    ("box_arrays.pml", ["-DWRITES=2"]),
    ("box_arrays.pml", ["-DWRITES=1", "-DCOPYING"]),
]
BROKEN = [
    (model, bug) for model in ("box_scalars.pml", "box_arrays.pml") for bug in bugs(model) if bug != "BUG_"
]


def check(model, defines, folder, at_random=False):
    """(errors, states, whether the search was complete, output) of an exhaustive search.

    at_random: in an order drawn by lot, always the same, which comes upon a mistake far sooner.
    """
    subprocess.run(["spin", "-a", *defines, str(MODELS / model)], cwd=folder, check=True, capture_output=True)
    subprocess.run(
        ["gcc", "-O0" if at_random else "-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-DMEMLIM=2000"]
        + (["-DT_RAND", "-DP_RAND"] if at_random else [])
        + ["-o", "pan", "pan.c"],
        cwd=folder,
        check=True,
    )
    search = ["./pan", "-m200000", *(["-RS7"] if at_random else [])]
    done = subprocess.run(search, cwd=folder, check=True, capture_output=True, text=True)
    errors = int(re.search(r"errors: (\d+)", done.stdout)[1])
    states = float(re.search(r"([\d.e+]+) states, stored", done.stdout)[1])
    complete = "Search not completed" not in done.stdout and "max search depth too small" not in done.stdout
    return errors, states, complete, done.stdout


@pytest.mark.parametrize(("model", "defines"), SOUND)
def test_no_interleaving_and_no_death_breaks_the_protocol(model, defines, tmp_path):
    errors, states, complete, output = check(model, defines, tmp_path)
    assert errors == 0, output
    assert complete, output
    assert states > 10_000


@pytest.mark.parametrize(("model", "bug"), BROKEN)
def test_a_seeded_mistake_is_found(model, bug, tmp_path):
    # Writes of each writer: as few as show the mistake, so that it is found soon.
    few = {"BUG_NO_TURN": ["-DWRITES=1"], "BUG_COUNTS_LATE": ["-DWRITES=2", "-DCOPYING"]}
    sized = few.get(bug, ["-DWRITES=2"] if model == "box_arrays.pml" else [])
    defines = [f"-D{bug}", *sized]
    errors, _, _, output = check(model, defines, tmp_path, at_random=True)
    assert errors > 0, output
