"""The box's calls from Python: what their arguments may be, and that no argument can crash them."""

import threading

import numpy as np
import pytest

import gristmill as gm


@pytest.fixture
def box():
    made = gm.Box(
        step=0, lr=0.5, phase="warmup", weights=np.arange(6, dtype="f4").reshape(2, 3), bias=np.ones(2)
    )
    yield made
    if not made.closed:
        made.unlink()


def test_read_into_takes_a_name_and_its_target_or_a_mapping_and_returns_the_version(box):
    weights, bias = np.zeros((2, 3), "f4"), np.zeros(2)
    assert box.read_into("weights", weights) == 1
    assert weights[1, 2] == 5
    box.update(weights=weights * 2, bias=bias)
    assert box.read_into({"weights": weights, "bias": bias}) == 2
    assert weights[1, 2] == 10
    assert bias.max() == 0
    assert box.read_into(fields="bias", out=bias) == 2


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((), TypeError, "needs 'fields'"),
        (("weights",), TypeError, "'weights': expected float32"),
        (("weights", np.zeros((3, 2), "f4")), TypeError, r"expected float32 \[2, 3\], got shape \[3, 2\]"),
        (("weights", np.zeros((2, 3), ">f4")), TypeError, "expected float32"),
        (("weights", np.zeros((3, 2), "f4").T), ValueError, "contiguous"),
        (("weights", np.broadcast_to(np.float32(0), (2, 3))), ValueError, "writeable"),
        (("step", np.zeros(1)), TypeError, "'step': expected an array, it is a int"),
        (("speed", np.zeros(1)), KeyError, "no field 'speed'; expected one of: step, lr"),
        (({"bias": np.zeros(2), "nothing": np.zeros(2)},), KeyError, "no field 'nothing'"),
        ((1, 2, 3), TypeError, "takes 2 arguments by position, got 3"),
    ],
)
def test_read_into_refuses_by_name_what_does_not_fit(box, arguments, error, message):
    with pytest.raises(error, match=message):
        box.read_into(*arguments)


def test_an_update_of_every_kind_of_field_is_one_version(box):
    assert (
        box.update(step=1, lr=2, phase="größer", weights=np.ones((2, 3), "f4"), bias=np.zeros((2, 2))[:, 0])
        == 2
    )
    snapshot = box.snapshot()
    assert (snapshot.step, snapshot.lr, snapshot.phase, snapshot.version) == (1, 2.0, "größer", 2)
    assert snapshot.weights.min() == 1
    assert snapshot.bias.max() == 0
    with pytest.raises(ValueError, match="'phase': expected at most 64 bytes, got 65"):
        box.update(step=2, phase="x" * 65)
    with pytest.raises(OverflowError, match="'step'"):
        box.update(lr=1.0, step=2**63)
    assert box.snapshot()[:3] == (1, 2.0, "größer")
    assert box.version == 2


def test_an_update_of_more_fields_than_the_quick_way_takes():
    fields = {f"f{i}": i for i in range(40)}
    box = gm.Box(**fields)
    assert box.update(**{name: value + 1 for name, value in fields.items()}) == 2
    assert tuple(box.snapshot())[:-1] == tuple(range(1, 41))


def test_watch_refuses_bad_arguments(box):
    with pytest.raises(TypeError, match="needs 'version'"):
        box.watch()
    with pytest.raises(TypeError):
        box.watch("1")
    with pytest.raises(OverflowError):
        box.watch(-1)
    with pytest.raises(TypeError, match="no argument 'until'"):
        box.watch(1, until=3)
    with pytest.raises(TypeError, match="several values for argument 'timeout'"):
        box.watch(1, 2.0, timeout=3.0)
    with pytest.raises(ValueError, match="NaN"):
        box.watch(1, float("nan"))
    assert box.watch(version=np.int64(0), timeout=0) == 1
    for spin in (0, 1e-4, 1e9):
        with pytest.raises(TimeoutError, match="no version after 1"):
            box.watch(1, 0.01, spin=spin)


def test_a_pin_of_one_field_is_its_array_of_several_a_tuple_of_none_the_pin(box):
    with box.pin("weights") as weights:
        assert weights.shape == (2, 3)
    with box.pin("bias", "step", "weights") as (bias, step, weights):
        assert (bias.shape, step, weights.shape) == ((2,), 0, (2, 3))
    with box.pin() as pin:
        assert isinstance(pin, gm.BoxPin)
        assert not pin.released
        assert pin["phase"] == "warmup"
        assert pin.fields["bias"] == ("float64", (2,))
        with pytest.raises(KeyError, match="no field 'speed'"):
            pin["speed"]
    assert pin.released
    with pytest.raises(KeyError, match="no field 'speed'"):
        box.pin("weights", "speed")


def test_a_view_of_a_pin_cannot_be_written(box):
    with box.pin("weights") as weights, pytest.raises(ValueError, match="read-only"):
        weights[0, 0] = 1


def test_a_pin_that_was_not_made_by_a_box_holds_nothing():
    pin = gm.BoxPin()
    assert pin.released
    assert pin.fields == {}
    with pytest.raises(TypeError, match=r"made by Box\.pin"):
        pin["weights"]
    pin.release()


def test_a_value_that_closes_the_box_when_it_is_asked_for_its_number_is_survived(box):
    class Closing:
        ndim = 0

        def item(self):
            box.close()
            return 1.0

    box.update(lr=Closing(), step=3)
    assert box.closed
    other = gm.Box(lr=0.0)

    class ClosingOther(Closing):
        def item(self):
            other.close()
            return 1.0

    other.lr = ClosingOther()
    assert other.closed


def test_a_box_may_be_closed_while_others_watch_and_copy():
    box = gm.Box(data=np.zeros(4 << 20, "u1"))
    started = threading.Barrier(4)

    def watch():
        started.wait()
        with pytest.raises((TimeoutError, gm.BoxClosedError)):
            box.watch(5, timeout=0.3)

    def read():
        started.wait()
        try:
            for _ in range(50):
                assert box.data.max() == 0
        except gm.BoxClosedError:
            pass

    threads = [threading.Thread(target=target) for target in (watch, read, read)]
    for thread in threads:
        thread.start()
    started.wait()
    box.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_several_boxes_of_a_process_do_not_disturb_each_other():
    boxes = [gm.Box(step=i, data=np.full(4, i)) for i in range(20)]
    for i, box in enumerate(boxes):
        box.update(step=i + 100, data=np.full(4, i + 100))
    for i, box in enumerate(boxes):
        assert (box.step, box.data[3], box.version) == (i + 100, i + 100, 2)
    assert len({box.name for box in boxes}) == 20


def test_sources_are_taken_whatever_their_layout_and_refused_whatever_their_byte_order(box):
    box.weights = np.asfortranarray(np.full((2, 3), 3, "f4"))
    box.bias = np.arange(8.0)[::4]
    box.weights = np.full((2, 3), 4, np.dtype("f4").newbyteorder("="))
    assert box.weights.min() == 4
    np.testing.assert_array_equal(box.bias, [0, 4])
    with pytest.raises(TypeError, match="expected float32"):
        box.weights = np.zeros((2, 3), ">f4")


def test_read_into_of_nothing_is_the_version_alone(box):
    assert box.read_into({}) == 1


def test_a_bound_method_keeps_its_box_and_says_what_it_is():
    update = gm.Box(step=0).update
    assert update(step=5) == 2
    assert update.__self__.step == 5
    assert update.__name__ == "update"
    assert "Writes several fields" in update.__doc__
    assert repr(update).startswith("<bound method update of <Box ")
    kept = [update.__self__.snapshot for _ in range(3)]
    assert [snapshot().step for snapshot in kept] == [5, 5, 5]
    with pytest.raises(TypeError, match="takes no arguments"):
        kept[0](1)
    with pytest.raises(TypeError, match="takes no keyword arguments"):
        kept[0](fresh=True)
    with pytest.raises(TypeError, match="takes no keyword arguments"):
        update.__self__.pin(field="step")
