"""gm.Config, and the compiled reader as Python sees it."""

import json
import pickle

import numpy as np
import pytest

import gristmill as gm
from gristmill import _core


def test_attributes_are_the_options_of_the_cpp_side():
    config = gm.Config()
    for option in _core.config_options():
        value = config
        for part in option.key.split("."):
            value = getattr(value, part)
        assert value == config.get(option.key)
    assert "learner" in dir(config)
    assert "gamma" in dir(config.learner)


def test_values_are_checked_when_they_are_set():
    config = gm.Config()
    config.learner.gamma = 0.5
    config.policy.hidden_sizes = (32, 16)
    config.log.tensorboard = False
    config.train.total_frames = 1e6
    assert config.learner.gamma == 0.5
    assert config.policy.hidden_sizes == [32, 16]
    assert isinstance(config.train.total_frames, int)
    with pytest.raises(
        gm.ConfigError, match=r"learner.gamma = 1.5 is too large: expected a number >= 0 and <= 1"
    ):
        config.learner.gamma = 1.5
    with pytest.raises(gm.ConfigError, match="not finite"):
        config.learner.gamma = float("nan")
    with pytest.raises(gm.ConfigError, match="not an integer"):
        config.workers.count = True
    with pytest.raises(gm.ConfigError, match=r"nearest is learner\.gamma"):
        config.learner.gama = 0.5
    with pytest.raises(AttributeError, match=r"nearest is learner\.gamma"):
        _ = config.learner.gama
    with pytest.raises(AttributeError, match="section"):
        config.learner = 3
    assert config.learner.gamma == 0.5


def test_numpy_numbers_and_arrays_are_values_too():
    config = gm.Config({"seed": np.int64(7), "policy": {"hidden_sizes": np.array([8, 8])}})
    resolved = config.resolve()
    assert resolved.values["seed"] == 7
    assert resolved.values["policy.hidden_sizes"] == [8, 8]


def test_nested_and_dotted_names_mean_the_same():
    nested = gm.Config(
        {"learner": {"gamma": 0.9}, "env": {"id": "gymnasium:A-v0", "kwargs": {"a": {"b": 1}}}}
    )
    dotted = gm.Config({"learner.gamma": 0.9, "env.id": "gymnasium:A-v0", "env.kwargs": {"a": {"b": 1}}})
    assert nested == dotted
    assert json.loads(nested.resolve().values["env.kwargs"]) == {"a": {"b": 1}}


def test_yaml_dicts_and_pickles_read_back_to_an_equal_config():
    config = gm.Config({"env.id": "gymnasium:A-v0", "env.kwargs": {"x": [1, "two"]}, "run.dir": "a b: c"})
    assert gm.Config.from_yaml(config.to_yaml()) == config
    assert gm.Config.from_yaml(config.to_yaml(with_help=True)) == config
    assert gm.Config.from_dict(config.to_dict()) == config
    assert pickle.loads(pickle.dumps(config)) == config


def test_contradictions_come_up_when_the_whole_is_used():
    config = gm.Config()
    config.learner.batch_trajectories = 128
    config.learner.minibatch_trajectories = 48
    with pytest.raises(gm.ConfigError, match="use 32 or 64"):
        config.resolve()


def test_a_file_and_overrides_of_either_form(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("learner:\n  gamma: 0.9\n")
    assert gm.Config.load(path).learner.gamma == 0.9
    assert gm.Config.load(path, {"learner": {"gamma": 0.8}}).learner.gamma == 0.8
    assert gm.Config.load(path, ["learner.gamma=0.7"]).learner.gamma == 0.7
    with pytest.raises(TypeError, match="expected a mapping or a list"):
        gm.Config.load(path, "learner.gamma=0.7")


def test_errors_name_file_line_key_and_expectation(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("seed: 1\nlearner:\n  learning_rate: fast\n")
    with pytest.raises(gm.ConfigError) as caught:
        gm.Config.load(path)
    assert str(caught.value) == (
        f"{path}:3: learner.learning_rate = fast is not a number: expected a number > 0 and <= 10"
    )
    assert isinstance(caught.value, ValueError)


def test_the_schema_accepts_what_the_reader_accepts():
    schema = json.loads(_core.config_schema())
    assert schema["$schema"].endswith("2020-12/schema")
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid(gm.Config().to_dict())
    assert not validator.is_valid({"learner": {"gamma": 2}})
    assert not validator.is_valid({"lerner": {}})
