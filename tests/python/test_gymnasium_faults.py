"""Gymnasium environments that raise, or return what their spaces do not have."""

import gymnasium
import numpy as np
import pytest
from scripted_environments import Buffers, Scripted, scripted

from gristmill.gymnasium_env import EnvironmentFailedError, GymnasiumVector


def test_an_exception_in_a_step_names_environment_seed_and_step_and_keeps_its_cause():
    vector = GymnasiumVector("Raising-v0", {"at": 2}, count=3, seed=5)
    buffers = Buffers(vector)
    vector.reset(buffers.observations)
    buffers.step(vector, [1, 1, 1])
    # Only environment 1 goes on; the others' episodes end all the time.
    buffers.step(vector, [1, 0, 1])
    buffers.step(vector, [1, 0, 1])
    with pytest.raises(EnvironmentFailedError) as caught:
        buffers.step(vector, [1, 0, 1])
    text = str(caught.value)
    assert f"environment 1 (Raising-v0, seed {vector.seeds[1]}) raised ZeroDivisionError in step 3" in text
    assert "of its episode 2, after 4 steps in all: the wheel came off" in text
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_exception_in_a_reset_is_named_as_such():
    vector = GymnasiumVector("Raising-v0", {"in_reset": True}, count=2)
    buffers = Buffers(vector)
    vector.reset(buffers.observations)
    with pytest.raises(
        EnvironmentFailedError, match=r"environment 1 .* raised KeyError in the reset of its episode 2"
    ):
        buffers.step(vector, [0, 1])


def test_an_observation_of_another_shape_is_named_not_broadcast():
    vector, buffers = scripted(count=3, observe=lambda env: np.zeros(2 if env.t < 2 else 1, np.float32))
    buffers.step(vector, [0, 0, 1])
    with pytest.raises(EnvironmentFailedError, match=r"environment 0 .*shape \(1,\), its space \(2,\)"):
        buffers.step(vector, [0, 0, 0])


def test_a_reward_that_is_no_number_is_named():
    class NoReward(Scripted):
        def step(self, action):
            observation, _, terminated, truncated, info = super().step(action)
            return observation, "one point" if self.t == 2 else 1.0, terminated, truncated, info

    gymnasium.register("NoReward-v0", entry_point=NoReward)
    vector = GymnasiumVector("NoReward-v0", None, 2)
    buffers = Buffers(vector)
    vector.reset(buffers.observations)
    buffers.step(vector, [1, 0])
    with pytest.raises(EnvironmentFailedError, match=r"environment 1 .*one point"):
        buffers.step(vector, [0, 0])
