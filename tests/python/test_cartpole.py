"""The native CartPole beside Gymnasium's: the same states and actions give the same episodes."""

import gymnasium
import numpy as np
import pytest

from gristmill import _core

EPISODES = 1_000


@pytest.fixture
def theirs():
    env = gymnasium.make("CartPole-v1", disable_env_checker=True)
    yield env
    env.close()


def balancing_action(observation, rng):
    """Mostly pushes under the falling pole, so that episodes are long enough to reach the time limit."""
    if rng.random() < 0.05:
        return int(rng.integers(2))
    return int(observation[2] + 0.5 * observation[3] + 0.05 * observation[0] + 0.1 * observation[1] > 0)


def play_both(theirs, ours, rng, choose, align_every=None):
    """Plays one episode in both from the same state; returns its length and how it ended.

    align_every: ours goes on from theirs' state every so many steps. An unstable system doubles the
    last bit of a sine every few steps, so that hundreds of steps cannot be compared in one piece.
    """
    theirs.reset(seed=int(rng.integers(2**31)))
    ours.reset()
    ours.set_cartpole_state(0, [float(value) for value in theirs.unwrapped.state])
    observation = np.asarray(theirs.unwrapped.state, np.float32)
    for step in range(1, 502):
        if align_every and step % align_every == 0:
            ours.set_cartpole_state(0, [float(value) for value in theirs.unwrapped.state], steps=step - 1)
        action = choose(observation, rng)
        observation, reward, terminated, truncated, _ = theirs.step(action)
        new, rewards, over, cut, final = ours.step([action])
        ended = terminated or truncated
        np.testing.assert_allclose((final if ended else new)[0], observation, rtol=0, atol=1e-5)
        assert rewards[0] == reward
        assert (over[0], cut[0]) == (terminated, truncated), f"step {step}"
        if ended:
            return step, terminated, truncated
    raise AssertionError("an episode went past its time limit")


def test_plays_a_thousand_random_episodes_as_gymnasium_does(theirs):
    rng = np.random.default_rng(7)
    ours = _core.VectorEnvironment("cartpole")
    ends = [play_both(theirs, ours, rng, lambda _, rng: int(rng.integers(2))) for _ in range(EPISODES)]
    assert all(terminated for _, terminated, _ in ends)
    assert 15 < np.mean([length for length, *_ in ends]) < 30


def test_plays_long_episodes_as_gymnasium_does_to_the_time_limit(theirs):
    rng = np.random.default_rng(8)
    ours = _core.VectorEnvironment("cartpole")
    ends = [play_both(theirs, ours, rng, balancing_action, align_every=50) for _ in range(60)]
    assert sum(truncated and not terminated for _, terminated, truncated in ends) > 5


def test_falling_in_the_last_step_is_terminated_and_truncated_in_both(theirs):
    state = [2.39, 3.0, 0.0, 0.0]
    ours = _core.VectorEnvironment("cartpole")
    theirs.reset(seed=0)
    ours.reset()
    theirs.unwrapped.state = np.array(state)
    theirs._elapsed_steps = 499
    ours.set_cartpole_state(0, state, steps=499)
    *_, terminated, truncated, _ = theirs.step(1)
    _, _, over, cut, _ = ours.step([1])
    assert (terminated, truncated) == (True, True)
    assert (over[0], cut[0]) == (True, True)


def test_starts_lie_where_gymnasiums_do():
    starts = _core.VectorEnvironment("cartpole", count=10_000, seed=3).reset()
    assert starts.shape == (10_000, 4)
    assert starts.dtype == np.float32
    assert np.abs(starts).max() <= 0.05
    np.testing.assert_allclose(starts.mean(axis=0), 0, atol=0.002)
    np.testing.assert_allclose(starts.std(axis=0), 0.1 / np.sqrt(12), rtol=0.03)


def test_the_seed_decides_the_starts_whoever_holds_the_environment():
    whole = _core.VectorEnvironment("cartpole", count=8, seed=3).reset()
    half = _core.VectorEnvironment("cartpole", count=4, seed=3, first_index=4).reset()
    other = _core.VectorEnvironment("cartpole", count=8, seed=4).reset()
    np.testing.assert_array_equal(whole[4:], half)
    assert not np.any(np.all(whole == other, axis=1))


def test_actions_of_a_wrong_number_or_value_are_refused():
    ours = _core.VectorEnvironment("cartpole", count=2)
    ours.reset()
    with pytest.raises(ValueError, match="each of 2 environments"):
        ours.step([0])
    with pytest.raises(ValueError, match="action 2 of environment 1; expected 0 to 1"):
        ours.step([0, 2])
    with pytest.raises(IndexError, match="environment 2 of 2"):
        ours.set_cartpole_state(2, [0, 0, 0, 0])
    with pytest.raises(ValueError, match="no cartpoles"):
        _core.VectorEnvironment("template").set_cartpole_state(0, [0, 0, 0, 0])


def test_an_unknown_native_id_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r'"cart".*cartpole, template, truncating.*gymnasium:CartPole-v1'):
        _core.VectorEnvironment("cart")
    assert _core.is_native_environment("cartpole")
    assert not _core.is_native_environment("gymnasium:CartPole-v1")
