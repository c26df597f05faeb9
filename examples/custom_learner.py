"""A learner of your own: A2C in plain torch, which solves CartPole-v1.

    python examples/custom_learner.py

gristmill starts the workers, moves their trajectories through shared memory and hands the parameters back;
what is learned, and how, is all below.
"""

import argparse
import collections
import time

import torch
from torch import nn
from torch.nn import functional

import gristmill as gm

GAMMA, LAMBDA = 0.99, 0.95
VALUE_WEIGHT = 0.5
REWARD_SCALE = 0.05  # brings returns near 1, where the critic learns fast
SOLVED = 475.0


class ActorCritic(nn.Module):
    """Any module with act(obs, state) will do. Workers call it with the observations of all their
    environments at once, and whatever it returns by name becomes a field of the batch."""

    def __init__(self, observations: int, actions: int, hidden: int = 64) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(observations, hidden), nn.Tanh(), nn.Linear(hidden, actions))
        self.critic = nn.Sequential(nn.Linear(observations, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def act(self, obs, state):
        log_probs = functional.log_softmax(self.actor(obs), -1)
        actions = torch.multinomial(log_probs.exp(), 1)
        return {
            "actions": actions[:, 0],
            "log_probs": log_probs.gather(1, actions)[:, 0],
            "values": self.critic(obs)[:, 0],
        }


def advantages_of(batch, values):
    """Generalised advantage estimation. An episode's next one begins in the same step: no value is carried
    over its end, but one that was only cut short (truncated) still had something to come, final_values."""
    ended = batch["terminated"] | batch["truncated"]
    following = torch.where(ended, batch["final_values"], values[:, 1:])
    deltas = REWARD_SCALE * batch["rewards"] + GAMMA * following - values[:, :-1]
    carry = GAMMA * LAMBDA * (~ended)
    advantages = torch.zeros_like(deltas)
    last = torch.zeros(len(deltas))
    for t in reversed(range(deltas.shape[1])):
        last = advantages[:, t] = deltas[:, t] + carry[:, t] * last
    return advantages


def learn(policy, optimizer, batch):
    observations = batch["observations"]  # [n, T + 1, 4]: the last is the bootstrap state
    with torch.no_grad():
        values = policy.critic(observations)[..., 0]
        advantages = advantages_of(batch, values)
        targets = advantages + values[:, :-1]
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
    log_probs = functional.log_softmax(policy.actor(observations[:, :-1]), -1)
    taken = log_probs.gather(-1, batch["actions"].long()[..., None])[..., 0]
    actor_loss = -(taken * advantages).mean()
    critic_loss = functional.mse_loss(policy.critic(observations[:, :-1])[..., 0], targets)
    optimizer.zero_grad()
    (actor_loss + VALUE_WEIGHT * critic_loss).backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
    optimizer.step()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--frames", type=int, default=3_000_000, help="give up after this many")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)

    policy = ActorCritic(observations=4, actions=2)
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    returns = collections.deque(maxlen=100)
    started = told = time.monotonic()
    # synchronous: a batch is collected under the parameters that learn from it, as A2C wants it.
    with gm.Rollouts(
        "cartpole", policy, workers=2, envs_per_worker=16, unroll=32, seed=options.seed, synchronous=True
    ) as rollouts:
        frames = 0
        for batch in rollouts.batches(32):
            learn(policy, optimizer, batch)
            rollouts.publish(policy)
            frames += batch["rewards"].numel()
            returns += batch["episode_returns"][batch["episode_lengths"] > 0].tolist()
            mean = sum(returns) / max(len(returns), 1)
            solved = len(returns) == 100 and mean >= SOLVED
            if solved or frames >= options.frames or time.monotonic() - told > 1:
                told = time.monotonic()
                print(f"{frames:9,} frames  {told - started:5.1f} s  return {mean:6.1f}")
            if solved or frames >= options.frames:
                break
    print("solved" if solved else "not solved")
    return 0 if solved else 1


if __name__ == "__main__":
    raise SystemExit(main())
