"""Moving data between your own processes: any objects, and trajectories of a fixed shape.

python examples/queue_basics.py
"""

import multiprocessing

import numpy as np

import gristmill as gm

PRODUCERS, EACH = 2, 500


def produce(queue, trajectories, number):
    """Both queues came here as arguments; they would with fork, spawn and forkserver alike."""
    for i in range(EACH):
        queue.put({"from": number, "count": i, "array": np.full(1000, i, np.float32)})
        # NumPy arrays, torch tensors, or anything that speaks DLPack.
        trajectories.put(
            {"observations": np.full((16, 4), i, np.float32), "rewards": np.ones(16, np.float32)}
        )


def main():
    # Any objects: takes the place of multiprocessing.Queue, and is many times as fast.
    queue = gm.Queue(maxsize=1000)
    # Trajectories of one shape: what is taken is not copied, but looked at where it lies.
    spec = gm.TrajectorySpec({"observations": ("float32", (16, 4)), "rewards": ("float32", 16)})
    trajectories = gm.TrajectoryQueue(spec, capacity=256)

    context = multiprocessing.get_context("spawn")
    producers = [
        context.Process(target=produce, args=(queue, trajectories, n), daemon=True) for n in range(PRODUCERS)
    ]
    for producer in producers:
        producer.start()

    messages = batches = 0
    reward = 0.0
    while messages < PRODUCERS * EACH or batches * 50 < PRODUCERS * EACH:
        if messages < PRODUCERS * EACH:
            messages += len(queue.get_many(timeout=60))
        if batches * 50 < PRODUCERS * EACH:
            with trajectories.get_many(50, timeout=60) as batch:
                reward += batch.tensor("rewards").sum().item()  # [50, 16], in shared memory
                batches += 1
    for producer in producers:
        producer.join(60)
    print(f"{messages} messages, {batches} batches of 50 trajectories, reward {reward:.0f}")
    assert reward == PRODUCERS * EACH * 16


if __name__ == "__main__":
    main()
