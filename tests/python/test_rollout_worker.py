"""gm.Worker by itself: what a policy and its environments make of a trajectory."""

import numpy as np
import pytest
import rollout_policies
import torch

import gristmill as gm
from gristmill.acting import PolicyError


@pytest.fixture(autouse=True)
def _numbered_from_zero(monkeypatch):
    monkeypatch.setattr(rollout_policies.Counter, "made", 0)


def worker(env=rollout_policies.Counter, policy=None, **options):
    policy = rollout_policies.Constant() if policy is None else policy
    return gm.Worker(env, policy, **{"envs": 4, "unroll": 6, **options})


def test_a_trajectory_holds_what_environment_and_policy_said():
    made = worker(env_kwargs={"length": 4}, index=3)
    got = made.collect()
    assert got["observations"].shape == (4, 7, 2)
    assert got["observations"][0, :, 0].tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert got["observations"][:, 0, 1].tolist() == [0, 1, 2, 3]
    assert got["rewards"][0].tolist() == [1, 2, 3, 4, 1, 2]
    assert got["terminated"][0].tolist() == [False, False, False, True, False, False]
    assert not got["truncated"].any()
    assert got["final_observations"][0, :, 0].tolist() == [0, 0, 0, 4, 0, 0]
    assert got["episode_returns"][0].tolist() == [0, 0, 0, 10, 0, 0]
    assert got["double"].shape == (4, 6, 2)
    assert got["values"].shape == (4, 7)
    assert got["worker"].tolist() == [3] * 4
    assert got["slot"].tolist() == [0, 1, 2, 3]
    assert list(got) == list(made.spec)
    assert {name: (a.dtype.name, a.shape[1:]) for name, a in got.items()} == made.fields
    # The next ones go on where these ended, and leave nothing of them behind.
    got = made.collect()
    assert got["observations"][0, :, 0].tolist() == [2, 3, 0, 1, 2, 3, 0]
    assert got["episode_lengths"][0].tolist() == [0, 4, 0, 0, 0, 4]
    assert got["final_observations"][0, :, 0].tolist() == [0, 4, 0, 0, 0, 4]


def test_a_cut_episode_is_valued_by_its_last_observation():
    class ValuesPlace(rollout_policies.Constant):
        def act(self, obs, state):
            return {**super().act(obs, state), "values": obs[:, 0]}

    got = worker(policy=ValuesPlace(), env_kwargs={"length": 4, "cut": True}).collect()
    assert got["truncated"][0].tolist() == [False, False, False, True, False, False]
    assert not got["terminated"].any()
    assert got["final_values"][0].tolist() == [0, 0, 0, 4, 0, 0]
    assert got["values"][0].tolist() == [0, 1, 2, 3, 0, 1, 2]


def test_final_observations_are_valued_by_value_where_there_is_one():
    class Valuing(rollout_policies.Constant):
        def value(self, obs, state):
            return obs[:, 0] * 10

    got = worker(policy=Valuing(), env_kwargs={"length": 4, "cut": True}).collect()
    assert got["final_values"][0].tolist() == [0, 0, 0, 40, 0, 0]
    assert got["values"].max() == 0


def test_a_recurrent_policys_state_is_reset_at_an_episodes_end_and_kept_at_each_trajectorys_start():
    made = worker(policy=rollout_policies.Counting(), env_kwargs={"length": 4})
    got = made.collect()
    np.testing.assert_array_equal(got["seen"], got["observations"][:, :-1, 0])
    assert got["state.steps"].tolist() == [[0]] * 4
    got = made.collect()
    np.testing.assert_array_equal(got["seen"], got["observations"][:, :-1, 0])
    assert got["state.steps"].tolist() == [[2]] * 4
    assert got["state.kind"].dtype == np.int64


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("range", "goes from 7 to 7, expected 0 to 1"),
        ("shape", r"'actions' has shape \[4, 3\], expected \[4\]"),
        ("name", "'rewards', which is a field of the trajectory already"),
        ("none", "expected 'actions' among them"),
    ],
)
def test_a_policy_that_breaks_its_contract_is_told_how(how, message):
    with pytest.raises(PolicyError, match=message):
        worker(policy=rollout_policies.Refusing(how))


def test_states_without_a_beginning_and_beginnings_without_a_state_are_refused():
    class Half(rollout_policies.Constant):
        def act(self, obs, state):
            return super().act(obs, state), torch.zeros(len(obs))

    class OtherHalf(rollout_policies.Constant):
        def initial_state(self, count):
            return torch.zeros(count)

    class TooShort(OtherHalf):
        def initial_state(self, count):
            return (torch.zeros(count - 1, 2),)

    with pytest.raises(PolicyError, match="has no initial_state"):
        worker(policy=Half())
    with pytest.raises(PolicyError, match=r"act\(\) must return"):
        worker(policy=OtherHalf())
    with pytest.raises(PolicyError, match=r"state.0 is a tensor \[3, 2\]; expected a tensor \[4, …\]"):
        worker(policy=TooShort())


def test_continuous_actions_arrive_as_the_policy_gave_them():
    class Middle:
        def act(self, obs, state):
            return torch.full((len(obs), 1), 0.5)

    got = worker("Pendulum-v1", Middle(), envs=2).collect()
    assert got["actions"].shape == (2, 6, 1)
    assert got["actions"].dtype == np.float32
    assert np.unique(got["actions"]).tolist() == [0.5]
    with pytest.raises(PolicyError, match=r"expected \[2, 1\]"):
        worker("Pendulum-v1", rollout_policies.Scripted(), envs=2)


def test_a_modules_parameters_become_those_of_the_box_in_place():
    policy = rollout_policies.Constant()
    made = worker(policy=policy)
    box = gm.Box.create(gm.segment_name("test", "parameters"), {"level": ("float32", (1,))})
    try:
        box.publish({"level": np.array([2], np.float32)})
        assert made.load(box) == 1
        assert policy.level.item() == 2
        with box.pin() as pin:
            assert policy.level.data_ptr() == pin.tensor("level").data_ptr()
        got = made.collect()
        assert np.unique(got["values"]).tolist() == [2]
        assert np.unique(got["versions"]).tolist() == [1]
        # More publishes than the box has slots: what is acted with stays as it was.
        for level in range(10):
            box.publish({"level": np.array([level], np.float32)})
        assert policy.level.item() == 2
        # Newer ones are taken between two steps.
        assert np.unique(made.collect(box)["values"]).tolist() == [2, 9]
    finally:
        box.unlink()


def test_it_fills_a_queue_of_its_own_spec():
    made = worker(env_kwargs={"length": 4})
    queue = gm.TrajectoryQueue(made.spec, capacity=8)
    made.run(queue, stop=lambda: len(queue) == 8)
    assert len(queue) == 8
    with queue.get_many(8) as batch:
        assert batch["observations"][7, :, 0].tolist() == [2, 3, 0, 1, 2, 3, 0]
        assert batch.tensor("rewards").shape == (8, 6)


def test_native_environments_are_stepped_in_place():
    made = worker("cartpole", rollout_policies.Scripted(), unroll=40)
    got = made.collect()
    ends = np.argwhere(got["terminated"])
    assert len(ends) >= 4
    for i, t in ends:
        assert abs(got["final_observations"][i, t, 2]) > 0.2  # fallen
        assert abs(got["observations"][i, t + 1]).max() <= 0.05  # begun anew
        assert got["episode_lengths"][i, t] == got["episode_returns"][i, t]
