"""Trains CartPole-v1 with Stable-Baselines3's PPO, rl-zoo's settings. Runs in the peer's environment.

Argument: the seed. From the environment: BENCH_LAUNCH (time.time() before this process was started),
BENCH_SECONDS (train at least so long), BENCH_LIMIT (and at most so long). The last line is "RESULT {…}".
"""

import json
import os
import sys
import time

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

LAUNCH = float(os.environ["BENCH_LAUNCH"])
SECONDS = float(os.environ["BENCH_SECONDS"])
LIMIT = float(os.environ["BENCH_LIMIT"])
TARGET = 475.0


class Watch(BaseCallback):
    def __init__(self):
        super().__init__()
        self.first_step = None
        self.solved_at = None

    def returns(self):
        return [episode["r"] for episode in self.model.ep_info_buffer]

    def _on_rollout_start(self):
        now = time.time()
        if self.first_step is None:
            self.first_step = now
        returns = self.returns()
        if self.solved_at is None and len(returns) >= 100 and np.mean(returns) >= TARGET:
            self.solved_at = now

    def _on_step(self):
        trained = time.time() - self.first_step
        enough = trained >= SECONDS and self.solved_at is not None
        return not enough and trained < LIMIT


def main():
    seed = int(sys.argv[1])
    torch.set_num_threads(1)
    environments = make_vec_env("CartPole-v1", n_envs=8, seed=seed)
    model = PPO(
        "MlpPolicy",
        environments,
        seed=seed,
        device="cpu",
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        ent_coef=0.0,
        learning_rate=1e-3,
        clip_range=0.2,
    )
    watch = Watch()
    model.learn(10**9, callback=watch)
    now = time.time()
    result = {
        "fps": model.num_timesteps / (now - watch.first_step),
        "solved_at_s": watch.solved_at and watch.solved_at - LAUNCH,
        "launch_to_first_step_s": watch.first_step - LAUNCH,
        "frames": model.num_timesteps,
        "mean_return": float(np.mean(watch.returns())),
    }
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
