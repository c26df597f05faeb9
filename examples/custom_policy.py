"""A policy of your own: recurrent, with a field of its own in the batch.

    python examples/custom_policy.py

Workers call act() with the observations of all their environments. What it returns by name comes back in the
batch; the state it returns is handed in again, set back where an episode begins.
"""

import torch
from torch import nn

import gristmill as gm


class Recurrent(nn.Module):
    def __init__(self, observations=4, actions=2, hidden=32):
        super().__init__()
        self.memory = nn.GRUCell(observations, hidden)
        self.actor = nn.Linear(hidden, actions)
        self.critic = nn.Linear(hidden, 1)

    def initial_state(self, count):
        return torch.zeros(count, self.memory.hidden_size)

    def act(self, obs, state):
        state = self.memory(obs, state)
        distribution = torch.distributions.Categorical(logits=self.actor(state), validate_args=False)
        actions = distribution.sample()
        return {
            "actions": actions,
            "log_probs": distribution.log_prob(actions),
            "values": self.critic(state)[:, 0],
            "entropies": distribution.entropy(),  # a field of our own: batch["entropies"] is [n, T]
        }, state

    def replay(self, batch):
        """The logits that the workers saw, [n, T, actions]: from each trajectory's first state on."""
        state, logits = batch["state"], []
        ended = batch["terminated"] | batch["truncated"]
        for t in range(ended.shape[1]):
            state = self.memory(batch["observations"][:, t], state)
            logits.append(self.actor(state))
            state = state * ~ended[:, t, None]
        return torch.stack(logits, 1)


def main():
    torch.manual_seed(0)
    policy = Recurrent()
    with gm.Rollouts(
        "cartpole", policy, workers=2, envs_per_worker=4, unroll=16, synchronous=True
    ) as rollouts:
        for i, batch in enumerate(rollouts.batches(8, count=5)):
            with torch.no_grad():
                log_probs = policy.replay(batch).log_softmax(-1)
                ours = log_probs.gather(-1, batch["actions"].long()[..., None])[..., 0]
            difference = (ours - batch["log_probs"]).abs().max().item()
            print(f"batch {i}: entropy {batch['entropies'].mean():.3f}, replayed to within {difference:.1e}")
            assert difference < 1e-4
            with torch.no_grad():  # a learner's step would go here
                policy.actor.bias += 0.1 * torch.randn(2)
            rollouts.publish(policy)


if __name__ == "__main__":
    main()
