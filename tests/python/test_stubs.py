"""The type stubs that are checked in are those of the modules as they are."""

import subprocess
import sys
from pathlib import Path

import gristmill

ROOT = Path(__file__).resolve().parents[2]


def test_the_stubs_say_what_the_compiled_modules_hold():
    command = [sys.executable, str(ROOT / ".ci" / "make_stubs.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_says_that_it_is_typed():
    assert (Path(gristmill.__file__).parent / "py.typed").exists()
