"""Trains the built-in policy on an environment in C++ that lives in a plugin.

python examples/cpp_env/run.py build/release/examples/cpp_env/catch.so
"""

import sys
import tempfile

import gristmill as gm


def main():
    library = sys.argv[1] if len(sys.argv) > 1 else "build/release/examples/cpp_env/catch.so"
    with tempfile.TemporaryDirectory() as folder:
        result = gm.train(
            {
                "env.id": f"plugin:{library}:Catch",
                "train.total_frames": 3_000_000,
                "train.stop_at_return": 0.95,
                "run.dir": folder,
            },
            on_metrics=lambda m: print(f"return {m.get('rollout/ep_rew_mean', float('nan')):5.2f}"),
        )
    print(f"{'solved' if result.solved else 'not solved'} after {result.frames:,} frames")
    return 0 if result.solved else 1


if __name__ == "__main__":
    raise SystemExit(main())
