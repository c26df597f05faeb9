"""What a run's folder of another's may do: be read, and nothing else."""

import os
import pickle
import stat
import sys
import textwrap

import pytest
from running import SMALL, run, write_config

import gristmill as gm
from gristmill import trust

MODULE = "a_strangers_environment"


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A module that leaves a mark when it is imported, and a memory of this test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    mark = tmp_path / "code-was-run"
    (tmp_path / f"{MODULE}.py").write_text(
        textwrap.dedent(f"""
            import gymnasium
            open({str(mark)!r}, "w").close()
            gymnasium.register("Stranger-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv")
        """)
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield mark
    sys.modules.pop(MODULE, None)


@pytest.fixture
def foreign_run(tmp_path, stranger):
    """The folder of a short run on the native environment, whose config.yaml then names the module."""
    result = gm.train(gm.Config({**SMALL, "run": {"dir": str(tmp_path / "runs"), "name": "foreign"}}))
    folder = tmp_path / "runs" / "foreign"
    config = folder / "config.yaml"
    text = config.read_text()
    assert "id: cartpole" in text
    config.write_text(text.replace("id: cartpole", f'id: "gymnasium:{MODULE}:Stranger-v0"'))
    assert result.checkpoint
    return folder


@pytest.mark.parametrize("words", [("eval", "--episodes", "1"), ("resume",)])
def test_a_strangers_run_runs_no_code_unless_it_is_trusted(foreign_run, stranger, words):
    refused = run(words[0], foreign_run, *words[1:])
    assert refused.returncode == 2
    assert f"the Python module {MODULE}" in refused.stderr
    assert "--trust" in refused.stderr
    assert not stranger.exists()
    run(words[0], foreign_run, "--trust", *words[1:])
    assert stranger.exists()


def test_the_same_from_python(foreign_run, stranger):
    from gristmill.evaluation import evaluate

    with pytest.raises(gm.ConfigError, match="trust=True"):
        gm.resume(foreign_run)
    with pytest.raises(gm.ConfigError, match="trust=True"):
        evaluate(foreign_run, episodes=1)
    # Only acts: it needs no environment.
    assert gm.load_policy(foreign_run).frames > 0
    assert not stranger.exists()
    assert evaluate(foreign_run, episodes=1, trust=True).returns


def test_an_environment_of_the_command_line_is_the_users_own_wish(foreign_run, stranger):
    run("resume", foreign_run, f"env.id=gymnasium:{MODULE}:Stranger-v0")
    assert stranger.exists()


def test_what_the_user_trained_with_is_not_asked_for_again(tmp_path, stranger, foreign_run):
    config = write_config(tmp_path, {**SMALL, "env": {"id": f"gymnasium:{MODULE}:Stranger-v0"}})
    assert run("train", config, "run.name=own").returncode == 0
    assert run("eval", tmp_path / "runs" / "own", "--episodes", "1").returncode == 0
    record = tmp_path / "state" / "gristmill" / "trusted_code"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    # By its code, which is what was run: in whichever folder it is named.
    assert run("eval", foreign_run, "--episodes", "1").returncode == 0


@pytest.mark.parametrize(
    ("env_id", "code"),
    [
        ("cartpole", ""),
        ("gymnasium:CartPole-v1", ""),
        ("gymnasium:ALE/Pong-v5", ""),
        ("envpool:Pong-v5", ""),
        ("LunarLander-v3", ""),
        ("gymnasium:os:x", "the Python module os"),
        ("os:x", "the Python module os"),
        ("gymnasium:a:b:x", "the Python module a:b"),
        ("plugin:/lib/evil.so:Name", "the library /lib/evil.so"),
        ("plugin:evil.so:Name", f"the library {os.getcwd()}/evil.so"),
        ("gymnasium:GymV26Environment-v0", "what GymV26Environment-v0 makes"),
    ],
)
def test_which_names_are_code(env_id, code):
    assert trust.code_of(env_id) == code


def test_a_memory_that_another_user_may_have_written_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    trust.remember("plugin:/lib/mine.so:Name")
    trust.require("plugin:/lib/mine.so:Other", "run", False)
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(tmp_path / "gristmill" / "trusted_code", 65534, 65534)
    with pytest.raises(gm.ConfigError):
        trust.require("plugin:/lib/mine.so:Name", "run", False)


class Malice:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", "config.yaml"])
def test_a_pickle_in_the_place_of_a_runs_file_is_not_read(tmp_path, name):
    result = gm.train(gm.Config({**SMALL, "run": {"dir": str(tmp_path / "runs"), "name": "pickled"}}))
    mark = tmp_path / "code-was-run"
    folder = tmp_path / "runs" / "pickled"
    path = folder / name if name == "config.yaml" else folder / "checkpoints" / result.checkpoint / name
    path.write_bytes(pickle.dumps(Malice(mark)))
    for use in (gm.load_policy, gm.resume):
        with pytest.raises((gm.CheckpointError, gm.ConfigError)):
            use(folder)
    assert not mark.exists()


def test_a_runs_folder_is_its_owners_alone(tmp_path):
    before = os.umask(0)
    try:
        result = gm.train(gm.Config({**SMALL, "run": {"dir": str(tmp_path / "runs")}}))
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(result.run_dir).st_mode) == 0o700
