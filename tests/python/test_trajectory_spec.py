"""gm.TrajectorySpec, and the trajectory queue for tensors and for children of every kind."""

import gc
import multiprocessing

import numpy as np
import pytest
import torch

import gristmill as gm

FIELDS = {
    "observations": ("float32", (3, 4)),
    "flags": ("bool", 3),
    "half": ("bfloat16", (2,)),
    "n": ("int64", ()),
}


def tensors(count):
    return {
        "observations": torch.arange(count * 12, dtype=torch.float32).view(count, 3, 4),
        "flags": torch.ones(count, 3, dtype=torch.bool),
        "half": torch.full((count, 2), 1.5, dtype=torch.bfloat16),
        "n": torch.arange(count),
    }


def test_a_spec_takes_dtypes_of_every_kind():
    spec = gm.TrajectorySpec(
        {
            "a": (np.float32, 3),
            "b": (torch.bfloat16, (2,)),
            "c": ("int64", ()),
            "d": np.zeros((2, 2), np.uint8),
            "e": torch.zeros(3, dtype=torch.float64),
            "f": (np.dtype("bool"), [4]),
        }
    )
    assert dict(spec) == {
        "a": ("float32", (3,)),
        "b": ("bfloat16", (2,)),
        "c": ("int64", ()),
        "d": ("uint8", (2, 2)),
        "e": ("float64", (3,)),
        "f": ("bool", (4,)),
    }
    assert spec.nbytes == 12 + 4 + 8 + 4 + 24 + 4
    assert spec.bytes_needed(10) == gm.TrajectoryQueue.bytes_needed(dict(spec), 10)
    assert spec.zeros(5)["b"].dtype == np.uint16
    assert spec.zeros(5)["d"].shape == (5, 2, 2)
    assert spec.zeros()["c"].shape == ()
    example = {"a": np.zeros(3, np.float32), "b": torch.zeros(2, dtype=torch.bfloat16), "c": 7}
    assert gm.TrajectorySpec.like(example) == {k: spec[k] for k in "abc"}
    assert "a: float32 [3]" in repr(spec)


def test_wrong_fields_are_named():
    with pytest.raises(TypeError, match="field 'a': expected \\(dtype, shape\\)"):
        gm.TrajectorySpec({"a": "float32"})
    with pytest.raises(ValueError, match="complex64"):
        gm.TrajectorySpec({"a": (torch.complex64, 3)})


def test_a_built_in_policys_trajectories_have_a_spec():
    environment = {"observation": {"dtype": "uint8", "shape": [2, 3]}, "action": {"count": 4}}
    spec = gm.TrajectorySpec.of_environment(environment, unroll=5)
    assert spec["observations"] == ("uint8", (6, 2, 3))
    assert spec["actions"] == ("int32", (5,))


def test_tensors_go_in_and_come_out_over_the_same_memory():
    queue = gm.TrajectoryQueue(gm.TrajectorySpec(FIELDS), capacity=8)
    given = tensors(4)
    assert queue.put_many(given) == 4
    with queue.get_many(4) as batch:
        got = batch.tensors()
        for name, tensor in given.items():
            torch.testing.assert_close(got[name], tensor)
        assert batch["half"].dtype == np.uint16
        assert batch.tensor("observations").data_ptr() == batch["observations"].ctypes.data
        # DLPack, for whoever else speaks it.
        assert torch.from_dlpack(batch["observations"]).data_ptr() == batch["observations"].ctypes.data
        del got


def test_a_tensor_of_another_dtype_is_refused_not_converted():
    queue = gm.TrajectoryQueue(FIELDS, 2)
    wrong = {**tensors(1), "observations": torch.zeros(1, 3, 4, dtype=torch.float64)}
    with pytest.raises(TypeError, match="field 'observations': expected float32"):
        queue.put_many(wrong)
    assert len(queue) == 0


def test_whatever_speaks_dlpack_goes_in():
    class Other:
        """An array of some other library."""

        def __init__(self, array):
            self._array = array

        def __dlpack__(self, **options):
            return self._array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self._array.__dlpack_device__()

    queue = gm.TrajectoryQueue({"a": ("float32", (2, 3))}, 2)
    queue.put({"a": Other(np.arange(6, dtype=np.float32).reshape(2, 3))})
    with queue.get_many(1) as batch:
        assert batch["a"].ravel().tolist() == [0, 1, 2, 3, 4, 5]


def test_a_tensor_keeps_its_places_taken():
    queue = gm.TrajectoryQueue(FIELDS, 4)
    queue.put_many(tensors(4))
    kept = queue.get_many(4).tensor("n")
    gc.collect()
    with pytest.raises(TimeoutError):
        queue.put_many(tensors(1), timeout=0)
    assert kept.tolist() == [0, 1, 2, 3]
    del kept
    gc.collect()
    assert queue.put_many(tensors(1), timeout=0) == 1


def _child(queue, box, messages, number):
    value = box.snapshot().weights.sum()
    queue.put({"a": np.full(3, value + number, np.float32)}, timeout=30)
    messages.put(("done", number))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_every_part_is_passed_to_children(method):
    spec = gm.TrajectorySpec({"a": ("float32", 3)})
    queue, messages = gm.TrajectoryQueue(spec, 4), gm.Queue()
    box = gm.Box(weights=np.ones(5, np.float32))
    context = multiprocessing.get_context(method)
    children = [context.Process(target=_child, args=(queue, box, messages, n)) for n in range(2)]
    for child in children:
        child.start()
    with queue.get_many(2, timeout=60) as batch:
        assert sorted(batch["a"][:, 0].tolist()) == [5, 6]
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    assert sorted(messages.get(timeout=30) for _ in range(2)) == [("done", 0), ("done", 1)]
