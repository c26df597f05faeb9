"""An environment of your own in Python, as a class, with the built-in policy and your own learner.

    python examples/custom_env.py

The class goes to the workers as it is, from this very script: nothing has to be registered or installed.
"""

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

import gristmill as gm


class Chase(gymnasium.Env):
    """Stay with a target that jumps about on a line. Reward: 1 while near, else minus the distance."""

    observation_space = spaces.Box(-2, 2, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, steps=50, speed=0.1):
        self.steps, self.speed = steps, speed

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.place, self.target = self.np_random.uniform(-1, 1, 2)
        return self._seen(), {}

    def step(self, action):
        self.t += 1
        self.place = float(np.clip(self.place + (int(action) - 1) * self.speed, -1, 1))
        distance = abs(self.place - self.target)
        if self.np_random.random() < 0.05:
            self.target = self.np_random.uniform(-1, 1)
        return self._seen(), 1.0 if distance < 0.1 else -distance, False, self.t >= self.steps, {}

    def _seen(self):
        return np.array([self.place, self.target], np.float32)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with gm.Rollouts(
        Chase, "mlp", workers=2, envs_per_worker=16, unroll=25, env_kwargs={"steps": 50}, synchronous=True
    ) as rollouts:
        policy = rollouts.policy  # the built-in network's twin in torch
        optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
        first = latest = None
        for i, batch in enumerate(rollouts.batches(32, count=250)):
            values = batch["values"]
            ended = batch["terminated"] | batch["truncated"]
            targets = values[:, -1]
            returns = torch.zeros_like(batch["rewards"])
            for t in reversed(range(returns.shape[1])):
                following = torch.where(ended[:, t], batch["final_values"][:, t], targets)
                targets = returns[:, t] = batch["rewards"][:, t] + 0.9 * following
            log_probs, entropies, predicted = policy.evaluate(batch["observations"][:, :-1], batch["actions"])
            advantages = returns - predicted.detach()
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
            loss = -(log_probs * advantages).mean() + 0.5 * (predicted - returns).square().mean()
            optimizer.zero_grad()
            (loss - 0.003 * entropies.mean()).backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()
            rollouts.publish()
            now = batch["rewards"].mean().item()
            first = now if first is None else first
            latest = now if latest is None else 0.9 * latest + 0.1 * now
            if i % 25 == 0:
                lag = batch.policy_lag.float().mean()
                print(f"batch {i:4}: reward {latest:6.3f} a step, policy lag {lag:.1f}")
    print(f"from {first:.3f} to {latest:.3f} a step")
    return 0 if latest > first + 0.3 else 1


if __name__ == "__main__":
    raise SystemExit(main())
