"""Making a Gymnasium environment by its id: what is said where that fails."""

import sys

import gymnasium
import pytest

from gristmill.gymnasium_env import make
from gristmill.spaces import UnusableEnvironmentError
from gristmill.worker import make_environments


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
