"""The box's typed fields from Python: attributes, types, dataclasses, arrays of every layout."""

import dataclasses
import datetime
import pickle

import numpy as np
import pytest

import gristmill as gm


@dataclasses.dataclass
class Schedule:
    rate: float = 1e-3
    step: int = 0
    name: str = "linear"


@dataclasses.dataclass
class Rate:
    rate: float = 2.0


@dataclasses.dataclass
class Plan:
    schedule: Schedule
    final: bool = False


def test_the_initial_values_are_version_one(box):
    assert box.version == 1
    assert (box.lr, box.step, box.phase, box.done, box.token) == (3e-4, 0, "warmup", False, b"\0\1")
    assert box.since == datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)
    assert box.at == datetime.datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    np.testing.assert_array_equal(box.weights, np.arange(6).reshape(2, 3))


def test_an_attribute_is_written_as_one_version_and_read_elsewhere(box):
    other = gm.Box.attach(box.name)
    box.lr = 1
    box.step = np.int32(-7)
    box.done = np.True_
    box.phase = "größer"
    box.since = datetime.datetime(1, 1, 1)
    box.at = datetime.datetime(2030, 1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    box.weights = np.ones((2, 3), "f4")
    assert box.version == 8
    assert (other.lr, other.step, other.done, other.phase) == (1.0, -7, True, "größer")
    assert type(other.lr) is float
    assert other.since == datetime.datetime(1, 1, 1)
    assert other.at == datetime.datetime(2029, 12, 31, 23, tzinfo=datetime.UTC)
    assert other.weights.min() == 1
    box.phase = ""
    assert other.phase == ""


def test_a_fresh_copy_is_the_readers_own(box):
    weights = box.weights
    weights[:] = 9
    assert box.weights.max() == 5


@pytest.mark.parametrize(
    ("field", "value", "error", "message"),
    [
        ("step", 2**63, OverflowError, "'step': expected an int of 64 bits"),
        ("step", 1.5, TypeError, "'step': expected int, got float"),
        ("step", True, TypeError, "'step': expected int, got bool"),
        ("lr", "fast", TypeError, "'lr': expected float, got str"),
        ("lr", 10**400, OverflowError, "'lr': expected a float"),
        ("done", 1, TypeError, "'done': expected bool, got int"),
        ("phase", "x" * 65, ValueError, "'phase': expected at most 64 bytes, got 65"),
        ("phase", b"x", TypeError, "'phase': expected str, got bytes"),
        ("token", "x", TypeError, "'token': expected bytes, got str"),
        ("since", datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), TypeError, "without a time zone"),
        ("at", datetime.datetime(2020, 1, 1), TypeError, "with a time zone"),
        (
            "weights",
            np.zeros((3, 2), "f4"),
            TypeError,
            r"'weights': expected float32 \[2, 3\], got shape \[3, 2\]",
        ),
        ("weights", np.zeros((2, 3)), TypeError, r"'weights': expected float32 \[2, 3\], got float64"),
        ("speed", 1, AttributeError, "no field 'speed'"),
    ],
)
def test_what_does_not_fit_is_an_error_that_names_the_field_and_both_sides(box, field, value, error, message):
    with pytest.raises(error, match=message):
        setattr(box, field, value)
    assert box.version == 1


def test_an_unknown_field_cannot_be_read_nor_a_field_deleted(box):
    with pytest.raises(AttributeError, match="no field 'speed'; expected one of: lr"):
        box.speed  # noqa: B018
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del box.lr
    assert not hasattr(box, "speed")


def test_names_of_the_box_itself_and_unknown_types_are_refused():
    with pytest.raises(ValueError, match="'update': that name is Box's own"):
        gm.Box(update=1)
    with pytest.raises(TypeError, match=r"'x': expected a bool, int.*got list"):
        gm.Box(x=[1])
    with pytest.raises(ValueError, match="4096"):
        gm.Box(x=gm.Bounded("a", 5000))


def test_numbers_may_come_as_tensors_without_dimensions(box):
    torch = pytest.importorskip("torch")
    box.lr = torch.tensor(0.25)
    box.step = torch.tensor(5)
    assert (box.lr, box.step) == (0.25, 5)
    with pytest.raises(TypeError, match="'lr': expected float"):
        box.lr = torch.zeros(2)


def test_dataclasses_are_groups_read_and_written_as_a_whole():
    plan = Plan(Schedule(0.5, 3, "cosine"))
    box = gm.Box(plan=plan, extra=1)
    assert box.plan == plan
    box.plan = Plan(Schedule(0.25, 4, "flat"), final=True)
    assert box.version == 2
    assert box.plan.schedule == Schedule(0.25, 4, "flat")
    assert box["plan.schedule.step"] == 4
    copy = pickle.loads(pickle.dumps(box))
    assert copy.plan == Plan(Schedule(0.25, 4, "flat"), final=True)
    assert gm.Box.attach(box.name).plan.schedule.name == "flat"
    assert gm.Box(Rate()).rate == 2.0


def test_layouts_of_the_source_do_not_matter():
    fortran = np.asfortranarray(np.arange(6, dtype="f8").reshape(2, 3))
    strided = np.arange(20, dtype="i2")[::2]
    box = gm.Box(
        f=fortran, s=strided, empty=np.zeros((0, 3), "f4"), half=np.ones(3, "f2"), one=np.zeros((), "i4")
    )
    np.testing.assert_array_equal(box.f, fortran)
    np.testing.assert_array_equal(box.s, strided)
    assert box.empty.shape == (0, 3)
    box.update(f=fortran * 2, s=strided[::-1], empty=np.zeros((0, 3), "f4"), half=np.zeros(3, "f2"))
    np.testing.assert_array_equal(box.s, strided[::-1])
    assert box.half.dtype == np.float16
    assert box.one.shape == ()
