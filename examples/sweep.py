"""Settings × seeds, as a table and a picture.

    python examples/sweep.py [FOLDER]

Call it twice: what has finished is not run again.
"""

import sys

import gristmill as gm
from gristmill.curves import plot


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "runs"
    table = gm.sweep(
        {"train.total_frames": 150_000, "log.interval_s": 0.05, "log.tensorboard": False},
        {"learner.learning_rate": [1e-3, 3e-4]},
        seeds=2,
        parallel=1,
        name="learning-rates",
        dir=folder,
        on_result=lambda row: print(f"{row['learner.learning_rate']}, seed {row['seed']}: {row['end']}"),
    )
    print(table)
    print(table.summary())
    for path in plot([f"{folder}/learning-rates"], f"{folder}/learning-rates/curves"):
        print(path)
    return 0 if all(row["end"] == "frames" for row in table) else 1


if __name__ == "__main__":
    raise SystemExit(main())
