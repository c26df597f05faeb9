"""Arrays of the box read in place, into memory of one's own, and as a module's tensors."""

import gc
import pickle

import numpy as np
import pytest

import gristmill as gm


def test_read_into_copies_several_arrays_of_one_version_into_own_memory():
    box = gm.Box(a=np.zeros(3, "f4"), b=np.zeros((2, 2), "i8"), n=1)
    box.update(a=np.ones(3, "f4"), b=np.full((2, 2), 4))
    a, b = np.empty(3, "f4"), np.empty((2, 2), "i8")
    assert box.read_into({"a": a, "b": b}) == 2
    assert (a.tolist(), b.min()) == ([1, 1, 1], 4)
    assert box.read_into("a", a) == 2
    with pytest.raises(TypeError, match="'n': expected an array, it is a int"):
        box.read_into("n", a)
    with pytest.raises(KeyError, match="no field 'c'; expected one of: n, a, b"):
        box.read_into("c", a)


def test_a_pin_looks_into_the_box_and_stays(box):
    with box.pin("weights") as weights:
        for step in range(9):
            box.update(weights=np.full((2, 3), step, "f4"))
        assert weights[1, 2] == 5
        assert not weights.flags.writeable
    with box.pin() as pin:
        assert pin["weights"].max() == 8
        assert pin["lr"] == 3e-4
        assert pin.version == 10


def test_arrays_and_pins_outlive_close_and_the_box_itself_then_raises(box):
    weights = box.pin()["weights"]
    copy = box.weights
    box.unlink()
    box.close()
    gc.collect()
    assert weights[1, 2] == copy[1, 2] == 5
    for use in (
        lambda: box.lr,
        lambda: setattr(box, "lr", 1.0),
        lambda: box.update(lr=1.0),
        lambda: box.snapshot(),
        lambda: box.version,
        lambda: box.pin(),
        lambda: box.watch(0),
        lambda: box.write(),
        lambda: pickle.dumps(box),
    ):
        with pytest.raises(gm.BoxClosedError):
            use()
    assert box.closed
    assert "closed" in repr(box)


def test_a_module_is_published_and_loaded_with_its_layout_checked():
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2, dtype=torch.bfloat16)
    )
    box = gm.Box(net.state_dict())
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_()
    version = box.publish(net)
    other = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2, dtype=torch.bfloat16)
    )
    assert box.load_into(other) == version == 2
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name
    with box.pin() as pin:
        tensors = pin.tensors()
        assert tensors["2.weight"].dtype == torch.bfloat16
        assert torch.equal(tensors["0.weight"], net[0].weight)
        layer = {"weight": tensors["0.weight"], "bias": tensors["0.bias"]}
        x = torch.ones(1, 3)
        assert torch.equal(torch.func.functional_call(net[0], layer, (x,)), net[0](x))
    out = torch.zeros(4, 3)
    box.read_into("0.weight", out)
    assert torch.equal(out, net[0].weight)
    with pytest.raises(TypeError, match=r"'0.weight': expected float32 \[4, 3\], got float32 \[4, 5\]"):
        box.publish(torch.nn.Sequential(torch.nn.Linear(5, 4), *list(net)[1:]))
    with pytest.raises(KeyError, match=r"'2\.weight' is missing"):
        box.load_into(net[:2])
