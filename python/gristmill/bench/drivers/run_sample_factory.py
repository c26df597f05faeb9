"""Trains CartPole-v1 with Sample Factory's own runner, watched from outside. Runs in the peer's environment.

Arguments go to Sample Factory as they are. From the environment: BENCH_LAUNCH (time.time() before this
process was started), BENCH_SECONDS (train at least so long), BENCH_LIMIT (and at most so long).
The last line is "RESULT {…}".
"""

import json
import os
import sys
import time

import numpy as np
from sample_factory.algo.runners.runner import AlgoObserver
from sample_factory.train import make_runner
from sf_examples.train_gym_env import parse_custom_args, register_custom_components

LAUNCH = float(os.environ["BENCH_LAUNCH"])
SECONDS = float(os.environ["BENCH_SECONDS"])
LIMIT = float(os.environ["BENCH_LIMIT"])
TARGET = 475.0
# The first figures include compilation and caches filling: frames/s are counted from here on.
WARM_UP = 5.0


class Watch(AlgoObserver):
    def __init__(self):
        self.first_step = None
        self.solved_at = None
        self.progress = []  # (time, frames), about one a second
        self.returns = []
        self.stopping = False

    def on_training_step(self, runner, training_iteration_since_resume):
        now = time.time()
        frames = sum(runner.env_steps.values())
        if self.first_step is None:
            self.first_step = now
        if not self.progress or now - self.progress[-1][0] > 1:
            self.progress.append((now, frames))
        self.returns = runner.policy_avg_stats.get("reward", [[]])[0]
        if self.solved_at is None and len(self.returns) >= 100 and np.mean(self.returns) >= TARGET:
            self.solved_at = now
        trained = now - self.first_step
        enough = trained >= SECONDS and self.solved_at is not None
        if (enough or trained >= LIMIT) and not self.stopping:
            self.stopping = True
            runner._stop_training()


def main():
    register_custom_components()
    _, runner = make_runner(parse_custom_args())
    watch = Watch()
    runner.register_observer(watch)
    status = runner.init()
    if status == 0:
        status = runner.run()
    if status != 0 or watch.first_step is None:
        sys.exit(f"Sample Factory ended with status {status}")
    warm = [p for p in watch.progress if p[0] - watch.first_step > WARM_UP]
    (t0, n0), (t1, n1) = warm[0], warm[-1]
    result = {
        "fps": (n1 - n0) / (t1 - t0),
        "solved_at_s": watch.solved_at and watch.solved_at - LAUNCH,
        "launch_to_first_step_s": watch.first_step - LAUNCH,
        "frames": n1,
        "mean_return": float(np.mean(watch.returns)),
    }
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
