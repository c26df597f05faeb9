"""Environments by class, function, EnvPool id and plugin, as a worker makes them."""

import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pytest
import rollout_policies
from running import SMALL, last_json, run, write_config

import gristmill as gm
from gristmill.environments import make_vector
from gristmill.spaces import UnusableEnvironmentError

HAS_ENVPOOL = importlib.util.find_spec("envpool") is not None
CATCH = Path(__file__).resolve().parents[2] / "build" / "release" / "examples" / "cpp_env" / "catch.so"


def steps(vector, actions, shape):
    count = len(vector)
    observations = np.zeros((count, *shape), np.float32)
    finals = np.zeros_like(observations)
    rewards = np.zeros(count, np.float32)
    terminated, truncated = np.zeros(count, bool), np.zeros(count, bool)
    vector.reset(observations)
    out = [observations.copy()]
    for action in actions:
        vector.step(action, observations, rewards, terminated, truncated, finals)
        out.append((observations.copy(), rewards.copy(), terminated.copy(), truncated.copy(), finals.copy()))
    return out


def test_a_class_and_a_function_are_made_with_their_arguments():
    for env in (rollout_policies.Counter, rollout_policies.counter):
        vector = make_vector(env, {"length": 2}, 3, 0)
        played = steps(vector, [np.zeros(3, np.int32)] * 2, (2,))
        assert played[1][0][:, 0].tolist() == [1, 1, 1]
        assert played[2][2].tolist() == [True] * 3
        assert played[2][4][:, 0].tolist() == [2, 2, 2]
        assert played[2][0][:, 0].tolist() == [0, 0, 0]


def test_what_makes_no_environment_is_refused():
    with pytest.raises(
        UnusableEnvironmentError, match="broken could not be made: RuntimeError: no such wheel"
    ):
        make_vector(rollout_policies.broken, {}, 1, 0)
    with pytest.raises(UnusableEnvironmentError, match="returned dict, which has no reset, step"):
        make_vector(dict, {}, 1, 0)
    with pytest.raises(UnusableEnvironmentError, match="expected a name such as"):
        make_vector(3, {}, 1, 0)
    with pytest.raises(UnusableEnvironmentError, match="takes no arguments"):
        make_vector("cartpole", {"length": 3}, 1, 0)


@pytest.mark.skipif(HAS_ENVPOOL, reason="EnvPool is installed")
def test_without_envpool_its_ids_say_what_to_install(tmp_path):
    config = write_config(tmp_path, {**SMALL, "env.id": "envpool:CartPole-v1"})
    done = run("train", config, "--json")
    assert done.returncode == 1
    assert 'pip install "gristmill[envpool]"' in last_json(done.stdout)["error"]


@pytest.mark.skipif(not HAS_ENVPOOL, reason="EnvPool is not installed")
class TestEnvPool:
    def test_episodes_follow_one_another_without_a_step_between(self):
        vector = make_vector("envpool:CartPole-v1", {}, 4, 3)
        lengths = np.zeros(4, int)
        ends = 0
        for seen, rewards, over, _, finals in steps(vector, [np.ones(4, np.int32)] * 60, (4,))[1:]:
            assert rewards.tolist() == [1] * 4
            lengths += 1
            for i in np.flatnonzero(over):
                ends += 1
                assert abs(finals[i, 2]) > 0.2  # fallen
                assert abs(seen[i]).max() <= 0.05  # begun anew
                assert 7 <= lengths[i] <= 12
                lengths[i] = 0
        assert ends >= 16
        vector.close()

    def test_the_same_seed_plays_the_same_episodes(self):
        one, two, other = (
            steps(make_vector("envpool:Pendulum-v1", {}, 2, seed), [np.zeros((2, 1), np.float32)] * 5, (3,))
            for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(one[5][0], two[5][0])
        assert not np.array_equal(one[0], other[0])

    def test_unknown_ids_and_arguments_are_refused(self):
        with pytest.raises(UnusableEnvironmentError, match="nearest: CartPole-v1"):
            make_vector("envpool:CartPole-v7", {}, 1, 0)
        with pytest.raises(UnusableEnvironmentError, match="num_envs is set by the worker"):
            make_vector("envpool:CartPole-v1", {"num_envs": 3}, 1, 0)

    def test_it_is_made_without_warnings_that_its_user_can_do_nothing_about(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            make_vector("envpool:CartPole-v1", {}, 1, 0).close()

    @pytest.mark.parametrize("policy", ["mlp", rollout_policies.Scripted()])
    def test_rollouts_step_it_with_the_built_in_policy_and_with_ones_own(self, policy):
        with gm.Rollouts("envpool:CartPole-v1", policy, workers=1, envs_per_worker=4, unroll=8) as made:
            for batch in made.batches(4, count=3, timeout=60):
                assert batch["observations"].shape == (4, 9, 4)
                assert batch["rewards"].unique().tolist() == [1]

    def test_a_run_trains_on_it(self, tmp_path):
        config = write_config(tmp_path, {**SMALL, "env.id": "envpool:CartPole-v1"})
        done = run("train", config, "--json")
        assert done.returncode == 0, done.stderr
        assert last_json(done.stdout)["frames"] >= 4096


@pytest.mark.skipif(not CATCH.exists(), reason="the example plugin is not built; make setup does it")
class TestPlugin:
    def test_it_is_stepped_in_python_and_in_native_workers(self, tmp_path):
        env = f"plugin:{CATCH}:Catch"
        played = steps(make_vector(env, {}, 2, 0), [np.ones(2, np.int32)] * 9, (3,))
        assert played[9][2].tolist() == [True, True]
        assert set(np.abs(played[9][1])) == {1}
        config = write_config(tmp_path, {**SMALL, "env.id": env})
        done = run("train", config, "--json")
        assert done.returncode == 0, done.stderr
        assert run("eval", last_json(done.stdout)["run_dir"], "--episodes", "2").returncode == 0
        with gm.Rollouts(env, "mlp", workers=1, envs_per_worker=4, unroll=9) as r:
            batch = next(r.batches(4, timeout=60))
            assert batch["terminated"].sum() == 4

    def test_a_library_that_is_not_there_ends_the_run_with_the_reason(self, tmp_path):
        config = write_config(tmp_path, {**SMALL, "env.id": f"plugin:{tmp_path}/none.so:Catch"})
        done = run("train", config, "--json")
        assert done.returncode == 1
        assert "cannot be loaded" in last_json(done.stdout)["error"]
