"""Checkpoints are plain safetensors files: other programs read ours, and ours reads theirs."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import safetensors
from safetensors.numpy import load_file, save_file

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool():
    """The C++ side, tests/learner/checkpoint_tool.cc, of the newest build."""
    named = os.environ.get("GRISTMILL_CHECKPOINT_TOOL")
    found = [Path(named)] if named else list(ROOT.glob("build/**/tests/learner/checkpoint_tool"))
    if not found:
        pytest.skip("the C++ tests are not built (make build)")
    newest = max(found, key=lambda path: path.stat().st_mtime)

    def run(*arguments):
        command = [str(newest), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.fixture
def checkpoint(tool, tmp_path):
    done = tool("write", tmp_path)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def test_safetensors_reads_the_parameters_of_a_checkpoint(checkpoint):
    tensors = load_file(checkpoint / "model.safetensors")
    # some_state(1000) of tests/learner/checkpoint_fixture.h: 12 numbers from 1000 on.
    assert set(tensors) == {"trunk.0.weight", "trunk.0.bias"}
    np.testing.assert_array_equal(
        tensors["trunk.0.weight"], np.arange(1000, 1009, dtype=np.float32).reshape(3, 3)
    )
    np.testing.assert_array_equal(tensors["trunk.0.bias"], np.arange(1009, 1012, dtype=np.float32))


def test_safetensors_reads_the_moments_of_a_checkpoint(checkpoint):
    tensors = load_file(checkpoint / "optimizer.safetensors")
    parameters = np.arange(1000, 1012, dtype=np.float32)
    first = np.concatenate([tensors[f"first_moment.trunk.0.{part}"].ravel() for part in ("weight", "bias")])
    second = np.concatenate([tensors[f"second_moment.trunk.0.{part}"].ravel() for part in ("weight", "bias")])
    np.testing.assert_array_equal(first, parameters * np.float32(-0.1))
    np.testing.assert_array_equal(second, parameters * np.float32(0.01))


def test_the_metadata_of_a_checkpoint_can_be_read(checkpoint):
    with safetensors.safe_open(checkpoint / "model.safetensors", "numpy") as file:
        assert file.metadata()["format"] == "pt"
        assert file.metadata()["checksum"].startswith("xxh64:")


def test_the_state_of_a_checkpoint_is_json(checkpoint):
    state = json.loads((checkpoint / "state.json").read_text())
    assert state["frames"] == 1000
    assert state["random_states"]["stream"] == '12 "quoted" \n'
    assert set(state["files"]) == {"model.safetensors", "optimizer.safetensors"}


def test_files_of_the_safetensors_package_are_read(tool, tmp_path):
    rng = np.random.default_rng(0)
    tensors = {
        "a.weight": rng.normal(size=(3, 5)).astype(np.float32),
        "scalar": np.array(7, np.int64),
        "none": np.zeros((0, 4), np.float64),
        "mask": rng.integers(2, size=9).astype(bool),
        "half": rng.normal(size=6).astype(np.float16),
        "pixels": rng.integers(256, size=(2, 2, 2)).astype(np.uint8),
    }
    save_file(tensors, tmp_path / "theirs.safetensors", metadata={"by": "the package"})
    done = tool("read", tmp_path / "theirs.safetensors")
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line.split()[1:-1] for line in done.stdout.splitlines()}
    assert lines == {name: [str(t.dtype), *map(str, t.shape)] for name, t in tensors.items()}

    # Written again under its own names, each tensor has the same bytes: the same hash.
    for name, tensor in tensors.items():
        alone = tmp_path / "alone.safetensors"
        save_file({name: tensor}, alone)
        assert tool("read", alone).stdout.strip() in done.stdout.splitlines()


def test_a_file_cut_short_is_refused_by_name(tool, checkpoint):
    file = checkpoint / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    done = tool("read", file)
    assert done.returncode == 1
    assert str(file) in done.stderr
    assert "cut short" in done.stderr
