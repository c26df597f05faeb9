"""The C++ adapter through which workers step Gymnasium environments."""

import numpy as np
import pytest
from gymnasium import spaces
from scripted_environments import Buffers, scripted

from gristmill import _core
from gristmill.gymnasium_env import GymnasiumVector


def test_the_cpp_adapter_steps_them_in_place():
    direct = GymnasiumVector("CartPole-v1", None, 4, seed=2)
    buffers = Buffers(direct)
    direct.reset(buffers.observations)
    wrapped = _core.VectorEnvironment.wrap(GymnasiumVector("CartPole-v1", None, 4, seed=2))
    assert len(wrapped) == 4
    np.testing.assert_array_equal(wrapped.reset(), buffers.observations)
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(200):
        actions = rng.integers(2, size=4)
        buffers.step(direct, actions)
        observations, rewards, terminated, truncated, finals = wrapped.step(actions)
        np.testing.assert_array_equal(observations, buffers.observations)
        np.testing.assert_array_equal(rewards, buffers.rewards)
        np.testing.assert_array_equal(terminated, buffers.terminated)
        np.testing.assert_array_equal(truncated, buffers.truncated)
        np.testing.assert_array_equal(finals[terminated], buffers.finals[buffers.terminated])
        ends += terminated.sum()
    assert ends > 10


def test_the_cpp_adapter_hands_over_continuous_actions_and_images():
    image = spaces.Box(0, 255, (4, 5), np.uint8)
    vector = GymnasiumVector(
        "Scripted-v0",
        {
            "observation_space": image,
            "action_space": spaces.Box(-1, 1, (2,), np.float32),
            "observe": lambda env: np.full((4, 5), env.t, np.uint8),
        },
        count=2,
    )
    wrapped = _core.VectorEnvironment.wrap(vector)
    wrapped.reset()
    observations, *_ = wrapped.step([[0.5, -3], [0, 0.25]])
    assert observations.dtype == np.uint8
    np.testing.assert_array_equal(observations, np.ones((2, 4, 5)))
    np.testing.assert_array_equal(vector.envs[0].unwrapped.actions[0], [0.5, -1])
    np.testing.assert_array_equal(vector.envs[1].unwrapped.actions[0], [0, 0.25])


def test_the_cpp_adapter_passes_on_the_traceback():
    wrapped = _core.VectorEnvironment.wrap(GymnasiumVector("Raising-v0", {"at": 0}, count=2))
    wrapped.reset()
    with pytest.raises(RuntimeError) as caught:
        wrapped.step([1, 0])
    text = str(caught.value)
    assert text.startswith("EnvironmentFailedError: environment 1 (Raising-v0, seed ")
    assert "Traceback (most recent call last)" in text
    assert 'raise ZeroDivisionError("the wheel came off")' in text


def test_the_cpp_adapter_closes_them():
    vector, _ = scripted()
    wrapped = _core.VectorEnvironment.wrap(vector)
    del wrapped
    assert all(env.unwrapped.closed for env in vector.envs)
