"""Commands in a mount, pid or user namespace of their own, for tests."""

import subprocess
import sys

import pytest


def run_in(options: list[str], setup: str, words: list[str], **keywords) -> subprocess.CompletedProcess:
    """`words` behind the shell commands of `setup`, under unshare with `options`. Skips the test where that
    is not permitted (most containers)."""
    unshare = ["unshare", *options, "sh", "-ec"]
    try:
        probe = subprocess.run([*unshare, setup], capture_output=True, text=True, timeout=30)
    except FileNotFoundError:
        pytest.skip("there is no unshare here")
    if probe.returncode:
        pytest.skip(f"namespaces are not permitted here: {probe.stderr.strip()}")
    return subprocess.run(
        [*unshare, f'{setup}\nexec "$@"', "sh", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        **keywords,
    )


def tiny(folder: str, size: str) -> str:
    """Shell: a file system of that size at `folder`."""
    return f"mount -t tmpfs -o size={size} tmpfs {folder}"


def python(code: str, *words) -> list[str]:
    return [sys.executable, "-c", code, *map(str, words)]
