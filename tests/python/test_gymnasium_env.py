"""Gymnasium environments stepped as one vector, as Python workers do."""

import json

import gymnasium
import numpy as np
from scripted_environments import Buffers, scripted

from gristmill import _core
from gristmill.gymnasium_env import GymnasiumVector, stream_seed


def test_steps_write_each_row_and_nothing_between():
    vector, buffers = scripted()
    buffers.step(vector, [0, 0, 0])
    np.testing.assert_array_equal(buffers.observations, [[1, 1]] * 3)
    np.testing.assert_array_equal(buffers.rewards, [10] * 3)
    assert not buffers.terminated.any()
    assert not buffers.truncated.any()
    assert (buffers.whole[:, [0, 2]] == -77).all()
    assert (buffers.finals == -77).all()


def test_the_next_episode_begins_in_the_step_of_an_end_and_the_final_observation_is_kept():
    vector, buffers = scripted()
    buffers.step(vector, [0, 0, 0])
    buffers.step(vector, [0, 1, 0])
    np.testing.assert_array_equal(buffers.observations, [[1, 2], [2, 0], [1, 2]])
    np.testing.assert_array_equal(buffers.finals, [[-77, -77], [1, 2], [-77, -77]])
    np.testing.assert_array_equal(buffers.rewards, [20, 20, 20])
    buffers.step(vector, [0, 0, 0])
    np.testing.assert_array_equal(buffers.observations, [[1, 3], [2, 1], [1, 3]])
    assert not buffers.terminated.any()


def test_terminated_and_truncated_are_kept_apart():
    vector, buffers = scripted(count=4)
    buffers.step(vector, [0, 1, 2, 3])
    np.testing.assert_array_equal(buffers.terminated, [False, True, False, True])
    np.testing.assert_array_equal(buffers.truncated, [False, False, True, True])
    np.testing.assert_array_equal(buffers.observations[:, 0], [1, 2, 2, 2])


def test_matches_gymnasiums_own_vector_with_same_step_resets():
    vector = GymnasiumVector("CartPole-v1", {"max_episode_steps": 30}, count=4, seed=11)
    buffers = Buffers(vector)
    vector.reset(buffers.observations)
    theirs = gymnasium.make_vec(
        "CartPole-v1",
        4,
        "sync",
        max_episode_steps=30,
        vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP},
    )
    expected, _ = theirs.reset(seed=vector.seeds)
    np.testing.assert_array_equal(buffers.observations, expected)
    rng = np.random.default_rng(0)
    ends = cuts = 0
    for _ in range(300):
        actions = rng.integers(2, size=4)
        buffers.step(vector, actions)
        expected, rewards, terminated, truncated, info = theirs.step(actions)
        np.testing.assert_array_equal(buffers.observations, expected)
        np.testing.assert_array_equal(buffers.rewards, rewards)
        np.testing.assert_array_equal(buffers.terminated, terminated)
        np.testing.assert_array_equal(buffers.truncated, truncated)
        for i in np.flatnonzero(terminated | truncated):
            np.testing.assert_array_equal(buffers.finals[i], info["final_obs"][i])
        ends += terminated.sum()
        cuts += truncated.sum()
    assert ends > 10
    assert cuts > 3


def test_environments_are_seeded_once_apart_and_reproducibly():
    vector, buffers = scripted()
    buffers.step(vector, [1, 1, 1])
    seeds = [env.unwrapped.seeds for env in vector.envs]
    assert [later for _, later in seeds] == [None] * 3
    assert [first for first, _ in seeds] == vector.seeds
    assert len(set(vector.seeds)) == 3
    assert all(0 <= seed < 2**31 for seed in vector.seeds)
    assert GymnasiumVector("Scripted-v0", None, 2, seed=0, first_index=1).seeds == vector.seeds[1:]
    assert GymnasiumVector("Scripted-v0", None, 3, seed=1).seeds != vector.seeds


def test_stream_seeds_are_those_of_the_native_environments():
    # tests/rollout/environment_test.cc has these numbers too.
    assert stream_seed(0, 0) == 0xA706DD2F4D197E6F
    assert stream_seed(42, 7) == 0xC48F072461237B34


def test_spec_is_what_the_cpp_side_reads():
    vector = GymnasiumVector("CartPole-v1")
    assert json.loads(vector.spec()) == {
        "observation": {"dtype": "float32", "shape": [4]},
        "action": {"count": 2},
    }
    assert json.loads(_core.VectorEnvironment.wrap(vector).spec()) == json.loads(vector.spec())


def test_environments_are_closed_with_their_vector():
    vector, _ = scripted()
    vector.close()
    assert all(env.unwrapped.closed for env in vector.envs)
