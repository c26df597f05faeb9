"""Gymnasium's spaces: which are supported, as what observations and actions, and what is refused."""

import json
import warnings

import numpy as np
import pytest
from gymnasium import spaces
from scripted_environments import scripted

from gristmill.gymnasium_env import EnvironmentFailedError, GymnasiumVector
from gristmill.spaces import (
    BoxActions,
    BoxObservations,
    DiscreteActions,
    DiscreteObservations,
    UnusableEnvironmentError,
)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (np.float32, np.float32),
        (np.float64, np.float32),
        (np.float16, np.float32),
        (np.uint8, np.uint8),
        (np.int8, np.float32),
        (np.int16, np.float32),
        (np.int64, np.float32),
    ],
)
def test_observations_stay_uint8_or_become_float32(dtype, expected):
    space = spaces.Box(0, 100, (2, 3), dtype)
    vector, buffers = scripted(observation_space=space, observe=lambda env: np.full((2, 3), env.t + 5, dtype))
    buffers.step(vector, [0, 1, 0])
    assert buffers.observations.dtype == expected
    assert json.loads(vector.spec())["observation"] == {"dtype": np.dtype(expected).name, "shape": [2, 3]}
    np.testing.assert_array_equal(buffers.observations[:, 0, 0], [6, 5, 6])
    np.testing.assert_array_equal(buffers.finals[1], np.full((2, 3), 6))


def test_integers_that_float32_cannot_hold_are_warned_of():
    with pytest.warns(UserWarning, match=r"exact up to 2\^24"):
        BoxObservations(spaces.Box(0, 2**40, (1,), np.int64))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BoxObservations(spaces.Box(0, 255, (1,), np.int64))


def test_discrete_observations_become_one_hot():
    space = spaces.Discrete(4, start=10)
    vector, buffers = scripted(observation_space=space, observe=lambda env: 10 + env.t)
    np.testing.assert_array_equal(buffers.observations, [[1, 0, 0, 0]] * 3)
    buffers.step(vector, [0, 1, 0])
    np.testing.assert_array_equal(buffers.observations, [[0, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]])
    np.testing.assert_array_equal(buffers.finals[1], [0, 1, 0, 0])
    assert (buffers.whole[:, [0, 2]] == -77).all()


def test_a_discrete_observation_outside_its_space_is_an_error_not_another_state():
    vector, buffers = scripted(observation_space=spaces.Discrete(2, start=1), observe=lambda env: 1 + env.t)
    buffers.step(vector, [0, 0, 0])
    with pytest.raises(EnvironmentFailedError, match="the observation is 3; its space has 1 to 2"):
        buffers.step(vector, [0, 0, 0])


def test_scalar_observations_are_one_number_each():
    vector, buffers = scripted(
        observation_space=spaces.Box(0, 9, (), np.float32), observe=lambda env: np.float32(env.t)
    )
    assert buffers.observations.shape == (3,)
    buffers.step(vector, [0, 1, 0])
    np.testing.assert_array_equal(buffers.observations, [1, 0, 1])


def test_discrete_actions_begin_at_the_spaces_start():
    vector, buffers = scripted(action_space=spaces.Discrete(3, start=-1))
    buffers.step(vector, [0, 1, 2])
    assert [env.unwrapped.actions[0] for env in vector.envs] == [-1, 0, 1]
    assert all(type(env.unwrapped.actions[0]) is int for env in vector.envs)


def test_box_actions_are_clipped_and_shaped_as_the_space_says():
    space = spaces.Box(np.float64([[-1, -2]]), np.float64([[1, np.inf]]), dtype=np.float64)
    vector, buffers = scripted(count=2, action_space=space)
    given = np.float32([[-5, -5], [0.5, 1e6]])
    buffers.step(vector, given)
    taken = [env.unwrapped.actions[0] for env in vector.envs]
    np.testing.assert_array_equal(taken, [[[-1, -2]], [[0.5, 1e6]]])
    assert taken[0].dtype == np.float64
    assert json.loads(vector.spec())["action"] == {"low": [-1, -2], "high": [1, None]}
    np.testing.assert_array_equal(
        given, np.float32([[-5, -5], [0.5, 1e6]]), "the policy's own stay as they are"
    )


def test_unbounded_box_actions_pass_as_they_are_and_share_nothing_with_the_policys():
    actions = BoxActions(spaces.Box(-np.inf, np.inf, (2,), np.float32))
    assert actions.json == {"low": [None, None], "high": [None, None]}
    given = np.float32([[1e30, -1e30]])
    taken = actions.decode(given)
    np.testing.assert_array_equal(taken, given)
    assert not np.shares_memory(taken, given)


def test_a_float64s_largest_number_counts_as_unbounded():
    largest = np.finfo(np.float64).max
    assert BoxActions(spaces.Box(-largest, largest, (1,), np.float64)).json == {"low": [None], "high": [None]}


@pytest.mark.parametrize(
    ("space", "name"),
    [
        (spaces.MultiDiscrete([2, 3]), "MultiDiscrete"),
        (spaces.MultiBinary(3), "MultiBinary"),
        (spaces.Tuple([spaces.Discrete(2)]), "Tuple"),
        (spaces.Dict({"a": spaces.Discrete(2)}), "Dict"),
        (spaces.Text(4), "Text"),
    ],
)
def test_other_spaces_are_refused_by_name_with_what_is_supported(space, name):
    for which, kwargs in (("observation", {"observation_space": space}), ("action", {"action_space": space})):
        with pytest.raises(UnusableEnvironmentError) as caught:
            GymnasiumVector("Scripted-v0", kwargs)
        text = str(caught.value)
        assert f"its {which} space is {name}" in text
        assert "Scripted-v0" in text
        assert "Supported are Box and Discrete observations" in text


def test_integer_box_actions_and_empty_boxes_are_refused():
    with pytest.raises(UnusableEnvironmentError, match="Box actions of dtype int32"):
        BoxActions(spaces.Box(0, 3, (2,), np.int32))
    with pytest.raises(UnusableEnvironmentError, match="empty"):
        BoxActions(spaces.Box(0, 1, (0,), np.float32))
    with pytest.raises(UnusableEnvironmentError, match="empty"):
        BoxObservations(spaces.Box(0, 1, (3, 0), np.float32))
    with pytest.raises(UnusableEnvironmentError, match="int32 can number"):
        DiscreteActions(spaces.Discrete(2**33))
    assert DiscreteObservations(spaces.Discrete(3)).shape == (3,)
