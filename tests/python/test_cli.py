"""The command line: what it prints, its exit codes, its errors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from running import SMALL, command, last_json, run, write_config

import gristmill as gm

COMMANDS = ("train", "resume", "eval", "config", "schema", "options", "clean")


def assert_one_line_error(result, *words):
    assert result.returncode == 2, result.stderr
    assert len(result.stderr.splitlines()) == 1
    for word in words:
        assert word in result.stderr


def test_version_and_help():
    assert run("--version").stdout == f"gristmill {gm.__version__}\n"
    text = run("--help").stdout
    for name in (*COMMANDS, "bench"):
        assert name in text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_commands_help_has_an_example(name):
    result = run(name, "--help")
    assert result.returncode == 0
    assert f"Example: gristmill {name}" in result.stdout


def test_the_package_and_the_cli_import_nothing_slow():
    code = """
import sys, gristmill
assert "numpy" not in sys.modules and "torch" not in sys.modules, "with the package"
import gristmill.cli, gristmill.commands, gristmill.training
slow = {"numpy", "torch", "typer", "rich", "tensorboard", "gymnasium", "asyncio"} & set(sys.modules)
assert not slow, slow
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_config_prints_values_and_where_they_come_from(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("seed: 3\nlearner:\n  gamma: 0.9\n")
    result = run("config", path, "learner.epochs=7")
    assert result.returncode == 0
    lines = {
        line.split("#")[0].strip(): line.split("#")[1].strip()
        for line in result.stdout.splitlines()
        if "#" in line
    }
    assert lines["seed: 3"] == f"{path}:1"
    assert lines["gamma: 0.9"] == f"{path}:3"
    assert lines["epochs: 7"] == "override"
    assert lines["gae_lambda: 0.95"] == "default"


def test_config_as_yaml_is_a_config_file(tmp_path):
    path = write_config(tmp_path, {"learner.gamma": 0.9})
    result = run("config", path, "--yaml")
    assert gm.Config.from_yaml(result.stdout) == gm.Config.load(path)
    assert "# discount per step" in result.stdout


def test_schema_is_json():
    assert json.loads(run("schema").stdout)["properties"]["learner"]["properties"]["gamma"]["maximum"] == 1


def test_options_lists_a_section():
    text = run("options", "queue").stdout
    assert "queue.capacity = 256" in text
    assert "learner.gamma" not in text


def test_bad_values_name_the_line_and_start_nothing(tmp_path):
    path = write_config(tmp_path, SMALL)
    path.write_text(path.read_text().replace("gamma: 0.99", "gamma: 2"))
    line = path.read_text().splitlines().index("  gamma: 2") + 1
    for name in ("train", "config"):
        assert_one_line_error(run(name, path), f"{path}:{line}: learner.gamma = 2", "<= 1")
    assert not (tmp_path / "runs").exists()


def test_bad_overrides_and_files(tmp_path):
    path = write_config(tmp_path, SMALL)
    assert_one_line_error(run("train", path, "learner.gama=0.9"), "override", "learner.gamma")
    assert_one_line_error(run("train", path, "learner.gamma"), "key=value")
    assert_one_line_error(run("train", tmp_path / "rum.yaml"), "no such file", "did you mean")
    assert_one_line_error(run("train", tmp_path), "is a folder")
    assert_one_line_error(run("train", path, "env.id=cartpol"), "env.id = cartpol", "cartpole")
    assert_one_line_error(run("resume", tmp_path / "none"), "no run there")
    assert_one_line_error(run("eval", tmp_path / "none"), "no run there")
    assert not (tmp_path / "runs").exists()


def test_usage_errors_exit_with_2(tmp_path):
    path = write_config(tmp_path, SMALL)
    for words in (["trian"], ["train"], ["train", path, "--nonsense"], ["eval", "x", "--episodes", "0"]):
        result = run(*words)
        assert result.returncode == 2
        assert "Traceback" not in result.stderr


def test_json_is_the_last_line_even_of_an_error(tmp_path):
    path = write_config(tmp_path, SMALL)
    result = run("train", path, "learner.gama=0.9", "--json")
    assert result.returncode == 2
    assert "learner.gamma" in last_json(result.stdout)["error"]


def test_a_device_that_is_not_there_is_named(tmp_path):
    result = run("train", write_config(tmp_path, SMALL), "learner.device=cuda:99")
    assert result.returncode == 2
    assert "learner.device" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_reader_that_goes_away_is_no_error():
    process = subprocess.Popen(command("schema"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait(60)


def test_clean_removes_what_the_dead_left(tmp_path):
    code = (
        "import os, gristmill as gm\n"
        "box = gm.Box.create(gm.segment_name('left', 'box'), {'a': ('int64', ())})\n"
        "print(box.name, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    name = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60
    ).stdout.strip()
    assert Path("/dev/shm" + name).exists()
    result = run("clean")
    assert result.returncode == 0
    # Another run may have been quicker.
    assert not Path("/dev/shm" + name).exists()
