"""Gymnasium environments stepped as one vector, as Python workers do."""

import json
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from gristmill import _core
from gristmill.gymnasium_env import EnvironmentFailedError, GymnasiumVector, make, stream_seed
from gristmill.spaces import (
    BoxActions,
    BoxObservations,
    DiscreteActions,
    DiscreteObservations,
    UnusableEnvironmentError,
)
from gristmill.worker import make_environments


class Scripted(gymnasium.Env):
    """Observes (episode, step); ends as its action says: 0 goes on, 1 terminates, 2 truncates, 3 both."""

    def __init__(self, observation_space=None, action_space=None, observe=None):
        self.observation_space = observation_space or spaces.Box(0, 1_000, (2,), np.float32)
        self.action_space = action_space or spaces.Discrete(4)
        self.observe = observe or (lambda env: self._shared())
        self.array = np.zeros(2, np.float32)
        self.episode = self.t = 0
        self.actions, self.seeds, self.closed = [], [], False

    def _shared(self):
        # The same array each time, as some environments do.
        self.array[:] = self.episode, self.t
        return self.array

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode += 1
        self.t = 0
        return self.observe(self), {}

    def step(self, action):
        self.actions.append(action)
        self.t += 1
        code = int(action) if np.ndim(action) == 0 else 0
        return self.observe(self), 10.0 * self.t, bool(code & 1), bool(code & 2), {}

    def close(self):
        self.closed = True


gymnasium.register("Scripted-v0", entry_point=Scripted)


class Buffers:
    """A vector's arrays, rows lying apart inside larger ones, as in a trajectory buffer."""

    def __init__(self, vector, fill=-77):
        count = len(vector)
        shape = vector.observation_shape
        fill = fill if vector.observation_dtype == np.float32 else 77
        self.whole = np.full((count, 3, *shape), fill, vector.observation_dtype)
        self.observations = self.whole[:, 1]
        self.rewards = np.full((count, 3), -77, np.float32)[:, 1]
        self.terminated = np.ones((count, 3), bool)[:, 1]
        self.truncated = np.ones((count, 3), bool)[:, 1]
        self.finals = np.full((count, *shape), fill, vector.observation_dtype)

    def step(self, vector, actions):
        actions = np.asarray(actions, vector.action_dtype)
        vector.step(actions, self.observations, self.rewards, self.terminated, self.truncated, self.finals)


def scripted(count=3, **kwargs):
    vector = GymnasiumVector("Scripted-v0", kwargs, count)
    buffers = Buffers(vector)
    vector.reset(buffers.observations)
    return vector, buffers


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


# -- spaces


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


# -- making them


def test_an_unknown_id_is_refused_with_the_nearest():
    with pytest.raises(UnusableEnvironmentError, match=r'"CartPole-v9"; nearest:.*CartPole-v1'):
        make("CartPole-v9")
    with pytest.raises(UnusableEnvironmentError, match=r"nearest:.*LunarLander-v3"):
        make("lunarlander-v3")
    with pytest.raises(UnusableEnvironmentError, match="written gymnasium:MODULE:ID"):
        make("Zzzzzzzz")


def test_well_known_packages_are_named_by_what_to_install():
    if any(known.startswith("ALE/") for known in gymnasium.registry):
        pytest.skip("ale-py is installed")
    with pytest.raises(UnusableEnvironmentError, match=r"pip install ale-py.*gymnasium:ale_py:ALE/Pong-v5"):
        make("ALE/Pong-v5")


def test_a_module_that_cannot_be_imported_is_named():
    with pytest.raises(
        UnusableEnvironmentError, match='module "no_such_module", which should register "My-v0"'
    ):
        make("no_such_module:My-v0")


def test_a_missing_dependency_is_named_with_what_to_install(monkeypatch):
    for module in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(UnusableEnvironmentError, match=r'LunarLander-v3.*pip install "gymnasium\[box2d\]"'):
        make("LunarLander-v3")


def test_wrong_arguments_are_named():
    with pytest.raises(UnusableEnvironmentError, match=r'env.kwargs {"gravvity": 3}.*gravvity'):
        make("CartPole-v1", {"gravvity": 3})


def test_a_worker_reads_the_id_and_the_arguments_of_the_configuration():
    vector = make_environments("gymnasium:CartPole-v1", '{"max_episode_steps": 7}', 2, 0, 0)
    assert len(vector) == 2
    assert vector.envs[0].spec.max_episode_steps == 7
    with pytest.raises(UnusableEnvironmentError, match="gymnasium:LunarLander-v3"):
        make_environments("CartPole-v1", "{}", 1, 0, 0)
    with pytest.raises(UnusableEnvironmentError, match=r"env.kwargs is not JSON"):
        make_environments("gymnasium:CartPole-v1", "{max: 7}", 1, 0, 0)
    with pytest.raises(UnusableEnvironmentError, match="expected a JSON object"):
        make_environments("gymnasium:CartPole-v1", "[7]", 1, 0, 0)


def test_environments_are_closed_with_their_vector():
    vector, _ = scripted()
    vector.close()
    assert all(env.unwrapped.closed for env in vector.envs)


# -- exceptions


class Raising(Scripted):
    def __init__(self, at=3, in_reset=False):
        super().__init__()
        self.at, self.in_reset = at, in_reset

    def reset(self, *, seed=None, options=None):
        if self.in_reset and self.episode == 1:
            raise KeyError("no more levels")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        if action == 0 and self.t == self.at:
            raise ZeroDivisionError("the wheel came off")
        return super().step(action)


gymnasium.register("Raising-v0", entry_point=Raising)


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


# -- the adapter that workers step them through


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
