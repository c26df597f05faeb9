"""gm.Rollouts: batches for a learner of the user's own."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import rollout_policies
import torch
from running import alive, await_until

import gristmill as gm


def rollouts(env="cartpole", policy=None, **options):
    given = {"workers": 1, "envs_per_worker": 4, "unroll": 6, **options}
    return gm.Rollouts(env, rollout_policies.Constant() if policy is None else policy, **given)


def first(made, n=4):
    with made as r:
        return next(r.batches(n, timeout=60)).clone()


def test_workers_act_on_what_was_published_and_the_lag_is_told():
    policy = rollout_policies.Constant()
    with rollouts(policy=policy, capacity=8) as r:
        for i, batch in enumerate(r.batches(4, count=12, timeout=60)):
            assert (batch["versions"][:, 1:] >= batch["versions"][:, :-1]).all()
            # Version v holds v - 1: what acted, and what it is said to be.
            torch.testing.assert_close(batch["values"][:, :-1], batch["versions"].float() - 1)
            torch.testing.assert_close(batch["version"], batch["versions"][:, 0])
            assert (batch.policy_lag >= 0).all()
            assert (batch.policy_lag <= i).all()
            with torch.no_grad():
                policy.level.fill_(r.version)
            assert r.publish(policy) == i + 2
        assert batch.newest > 1


def test_synchronous_workers_wait_for_the_next_version():
    policy = rollout_policies.Constant()
    with rollouts(policy=policy, workers=2, envs_per_worker=3, synchronous=True) as r:
        for i, batch in enumerate(r.batches(6, count=5, timeout=60)):
            assert batch["versions"].unique().tolist() == [i + 1]
            assert batch.policy_lag.unique().tolist() == [0]
            assert sorted(batch["worker"].tolist()) == [0, 0, 0, 1, 1, 1]
            r.publish(policy)
        with pytest.raises(ValueError, match="batches of workers × envs_per_worker, 6"):
            next(r.batches(5))


def test_a_policy_may_be_any_object_and_without_values():
    batch = first(rollouts(policy=rollout_policies.Scripted(), final_observations=False))
    assert batch["actions"].unique().tolist() == [1]
    for name in ("values", "log_probs", "final_values", "final_observations"):
        assert name not in batch


def test_a_policy_may_be_named():
    assert first(rollouts(policy="rollout_policies:Constant"))["values"].unique().tolist() == [0]
    with pytest.raises(ValueError, match='"rollout_policies:Nobody" cannot be imported'):
        rollouts(policy="rollout_policies:Nobody")


@pytest.mark.parametrize("env", ["cartpole", "CartPole-v1", "gymnasium:CartPole-v1"])
def test_the_built_in_policy_has_a_twin_in_torch(env):
    with rollouts(env, "mlp", policy_options={"hidden_sizes": [16], "activation": "relu"}) as r:
        for batch in r.batches(4, count=6, timeout=60):
            one = batch["version"] == batch["version"].max()
            if batch["version"].min() == r.version:  # acted under what the twin holds now
                log_probs, _, values = r.policy.evaluate(
                    batch["observations"][one, :-1], batch["actions"][one]
                )
                torch.testing.assert_close(log_probs, batch["log_probs"][one], rtol=1e-4, atol=1e-5)
                torch.testing.assert_close(values, batch["values"][one, :-1], rtol=1e-4, atol=1e-5)
            else:
                continue
        assert r.environment["action"] == {"count": 2}
        with torch.no_grad():
            r.policy.critic.bias.add_(7)
        version = r.publish()
        for batch in r.batches(4, count=50, timeout=60):
            new = batch["version"] >= version
            if new.any():
                _, _, values = r.policy.evaluate(batch["observations"][new, :-1], batch["actions"][new])
                torch.testing.assert_close(values, batch["values"][new, :-1], rtol=1e-4, atol=1e-5)
                break
        else:
            pytest.fail("no worker took the new version")


def test_the_built_in_policys_twin_for_continuous_actions():
    with rollouts("Pendulum-v1", "mlp", synchronous=True, policy_options={"shared_trunk": False}) as r:
        for batch in r.batches(4, count=1, timeout=60):
            log_probs, entropy, values = r.policy.evaluate(batch["observations"][:, :-1], batch["actions"])
            torch.testing.assert_close(log_probs, batch["log_probs"], rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(values, batch["values"][:, :-1], rtol=1e-4, atol=1e-4)
            assert entropy.shape == log_probs.shape


def test_views_are_released_by_the_loop_and_stay_valid_while_they_are_kept():
    with rollouts(rollout_policies.Counter, capacity=24) as r:
        loop = r.batches(4, timeout=60)
        batch = next(loop)
        kept = batch["observations"]
        before = kept.clone()
        array = batch.numpy("rewards")
        assert np.shares_memory(array, batch["rewards"].numpy())
        del array
        for _ in range(5):
            following = next(loop)
            assert following["observations"].data_ptr() != kept.data_ptr()
        with pytest.raises(ValueError, match="the batch is released"):
            batch["rewards"]
        torch.testing.assert_close(kept, before)
        del following
        loop.close()
    torch.testing.assert_close(kept, before)  # closed: still valid


def test_the_last_batch_can_be_used_after_the_loop():
    with rollouts(rollout_policies.Counter) as r:
        batch = next(r.batches(4, timeout=60))
        assert batch["rewards"].shape == (4, 6)
        for last in r.batches(4, count=2, timeout=60):
            if last["version"].min() >= 1:
                break
        assert last["rewards"].shape == (4, 6)


def test_a_loop_that_keeps_nothing_goes_round_the_queue_many_times():
    with rollouts(rollout_policies.Counter, capacity=8) as r:
        for batch in r.batches(4, count=30, timeout=60):
            rewards = batch["rewards"]  # kept until the next one is there
            assert rewards.shape == (4, 6)


def test_keeping_every_batch_is_an_error_that_says_so():
    with rollouts(capacity=8) as r:
        kept = []
        with pytest.raises(RuntimeError, match="taken 8 trajectories ago are still in use"):
            kept.extend(batch["rewards"] for batch in r.batches(4, timeout=60))
        assert len(kept) == 2
        kept.clear()
        gc.collect()
        for batch in r.batches(4, count=3, timeout=60):
            assert batch["rewards"].shape == (4, 6)


def test_a_policy_that_breaks_its_contract_ends_the_loop_with_its_traceback():
    with (
        rollouts(policy=rollout_policies.Refusing("raise")) as r,
        pytest.raises(gm.WorkerError, match="the policy came off") as caught,
    ):
        next(r.batches(4, timeout=60))
    assert "worker 0" in str(caught.value)
    assert "rollout_policies.py" in str(caught.value)
    assert caught.value.worker == 0


def test_an_environment_that_raises_ends_the_loop_with_its_traceback():
    with (
        rollouts(rollout_policies.Counter, env_kwargs={"fault": "raise"}) as r,
        pytest.raises(gm.WorkerError, match="the wheel came off") as caught,
    ):
        next(r.batches(4, timeout=60))
    assert "worker 0" in str(caught.value)
    assert "rollout_policies.py" in str(caught.value)


def test_an_environment_that_raises_is_restarted_when_asked_for(tmp_path):
    fault = {"fault": "raise", "once": str(tmp_path / "once")}
    with rollouts(rollout_policies.Counter, env_kwargs=fault, on_error="restart") as r:
        for batch in r.batches(4, count=2, timeout=60):
            assert torch.isfinite(batch["rewards"]).all()
        assert r.statistics()["restarts"] == 1


def test_an_observation_that_is_not_finite_is_refused():
    with (
        rollouts(rollout_policies.Counter, env_kwargs={"fault": "nan"}) as r,
        pytest.raises(gm.WorkerError, match="observation is not finite in environment 0 of worker 0"),
    ):
        next(r.batches(4, timeout=60))


@pytest.mark.parametrize("policy", [None, "mlp"])
def test_an_environment_that_cannot_be_made_says_why(policy):
    with (
        rollouts(rollout_policies.broken, policy) as r,
        pytest.raises(gm.WorkerError, match="broken could not be made: RuntimeError: no such wheel"),
    ):
        next(r.batches(4, timeout=60))


@pytest.mark.parametrize("policy", [None, "mlp"])
def test_a_killed_worker_is_restarted_and_the_loop_goes_on(policy):
    with rollouts(policy=policy, workers=2) as r:
        loop = r.batches(4, timeout=60)
        next(loop)
        victim = r._board.row(0)["pid"]
        os.kill(victim, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while r._board.row(0)["incarnation"] == 0 or not r._board.row(0)["counters"]["frames"]:
            next(loop)
            assert time.monotonic() < deadline
        assert r.statistics()["restarts"] >= 1
        loop.close()


def test_the_same_seed_steps_the_same_episodes():
    one, two = (
        first(rollouts("cartpole", rollout_policies.Scripted(), seed=3, synchronous=True)) for _ in range(2)
    )
    torch.testing.assert_close(one["observations"], two["observations"])
    other = first(rollouts("cartpole", rollout_policies.Scripted(), seed=4, synchronous=True))
    assert not torch.equal(one["observations"], other["observations"])


def test_a_stop_on_the_board_ends_the_loop():
    with rollouts() as r:
        loop = r.batches(4, timeout=60)
        next(loop)
        gm.RunBoard.attach(f"{r._prefix}.board").request_stop()
        with pytest.raises(RuntimeError, match="told to stop"):
            for _ in loop:
                pass


def test_closing_leaves_no_process_and_no_segment():
    r = rollouts(workers=2)
    for _ in r.batches(4, count=1, timeout=60):
        pass
    pids = [r._board.row(i)["pid"] for i in range(2)]
    prefix = r._prefix.lstrip("/")
    r.close()
    r.close()
    assert not any(map(alive, pids))
    assert not [s for s in gm.list_segments() if prefix in s.name]
    with pytest.raises(RuntimeError, match="closed"):
        next(r.batches(4))


SCRIPT = """
import sys
import torch
from torch import nn
import gristmill as gm

class Policy(nn.Module):  # lives in __main__: goes by value
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)
    def act(self, obs, state):
        return self.linear(obs).argmax(-1)

with gm.Rollouts("cartpole", Policy(), workers=2, envs_per_worker=4, unroll=8) as r:
    for i, batch in enumerate(r.batches(8)):
        if i == 0:
            print(*(r._board.row(w)["pid"] for w in range(2)), flush=True)
"""


@pytest.mark.parametrize("death", [signal.SIGINT, signal.SIGKILL])
def test_ctrl_c_and_a_kill_of_the_learner_end_the_workers(death, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2
        if death == signal.SIGINT:
            os.killpg(process.pid, death)  # as a terminal does: to the whole group
        else:
            os.kill(process.pid, death)
        error = process.communicate(timeout=60)[1]
        assert ("KeyboardInterrupt" in error) == (death == signal.SIGINT)
        await_until(lambda: not any(map(alive, pids)), "the workers' end", 30)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    gm.sweep_segments()
    assert not [s for s in gm.list_segments() if s.pid == process.pid]


def test_what_cannot_be_pickled_is_said_at_once():
    class Holder(rollout_policies.Constant):
        def __init__(self):
            super().__init__()
            self.lock = threading.Lock()

    with pytest.raises(ValueError, match="cannot be pickled for the workers"):
        rollouts(policy=Holder())


def test_wrong_arguments_are_refused():
    with pytest.raises(TypeError, match=r"an object with act\(obs, state\)"):
        gm.Rollouts("cartpole", 3)
    with pytest.raises(ValueError, match="on_error"):
        rollouts(on_error="ignore")
    with pytest.raises(gm.ConfigError, match=r"workers\.count"):
        rollouts(workers=0)
    with pytest.raises(ValueError, match="policy_options"):
        rollouts(policy_options={"hidden_sizes": [8]})
    with rollouts() as r:
        with pytest.raises(ValueError, match="at least 1"):
            next(r.batches(0))
        next(r.batches(4, timeout=60))
        with pytest.raises(ValueError, match="give capacity"):
            next(r.batches(4000))
