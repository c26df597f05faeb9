"""gm.Worker, gm.TrajectoryQueue, gm.TrajectorySpec, gm.Box and gm.Queue as arguments of child processes."""

import multiprocessing

import numpy as np
import pytest
import rollout_policies

import gristmill as gm

METHODS = ["fork", "spawn", "forkserver"]


def _work(worker, spec, queue, box, results):
    """A process that has nothing but what it was given."""
    assert worker.spec == spec
    assert queue.fields == dict(spec)
    worker.run(queue, box, stop=lambda: worker.put_trajectories >= 4)
    results.put((worker.index, worker.version, worker.put_trajectories))
    worker.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("method", METHODS)
def test_everything_of_an_experiment_can_be_given_to_a_child(method):
    context = multiprocessing.get_context(method)
    options = {"envs": 4, "unroll": 6, "env_kwargs": {"length": 4}}
    workers = [
        gm.Worker(rollout_policies.Counter, rollout_policies.Constant(), seed=i, index=i, **options)
        for i in range(2)
    ]
    spec = workers[0].spec
    queue, results = gm.TrajectoryQueue(spec, capacity=16), gm.Queue()
    box = gm.Box.create(gm.segment_name("test", f"passing-{method}"), {"level": ("float32", (1,))})
    children = [context.Process(target=_work, args=(worker, spec, queue, box, results)) for worker in workers]
    try:
        box.publish({"level": np.array([3], np.float32)})
        for child in children:
            child.start()
        with queue.get_many(8, timeout=60) as batch:
            assert sorted(batch["worker"].tolist()) == [0] * 4 + [1] * 4
            assert np.unique(batch["values"]).tolist() == [3]  # the box's parameters
            assert batch["rewards"].max() == 4
        assert sorted(results.get(timeout=60) for _ in children) == [(0, 1, 4), (1, 1, 4)]
    finally:
        for part in (queue, results):
            (part.close if part is queue else part.shutdown)()  # nobody waits any more
        for child in children:
            child.join(30)
        for part in (queue, box, results):
            part.unlink()
    assert [child.exitcode for child in children] == [0, 0]


@pytest.mark.parametrize("env", ["cartpole", "CartPole-v1"])
def test_a_pickled_worker_plays_the_same_episodes_from_their_beginning(env):
    import pickle

    made = gm.Worker(env, rollout_policies.Scripted(), envs=3, unroll=8, seed=7, index=2)
    kept = {name: array.copy() for name, array in made.collect().items()}
    made.collect()
    another = pickle.loads(pickle.dumps(made))
    assert another.spec == made.spec
    for name, array in another.collect().items():
        np.testing.assert_array_equal(array, kept[name], err_msg=name)


def test_a_spec_pickles_as_what_it_is():
    import pickle

    spec = gm.TrajectorySpec({"a": ("float32", (2,)), "b": ("bfloat16", ())})
    copied = pickle.loads(pickle.dumps(spec))
    assert type(copied) is gm.TrajectorySpec
    assert copied == spec
