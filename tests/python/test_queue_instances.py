"""Instances of classes through a gm.Queue: as pickle has it, whichever way they go."""

import abc
import copyreg
import enum
import pickle
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import pytest

import gristmill as gm

PLAIN = b"\xa1"


class Plain:
    def __init__(self, *args, **attributes):
        assert not args
        self.__dict__.update(attributes)

    def __eq__(self, other):
        return type(other) is type(self) and other.__dict__ == self.__dict__


@dataclass
class Data:
    number: int
    text: str = "x"
    inner: list = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    number: int


class Child(Plain):
    pass


class Abstract(abc.ABC):
    @abc.abstractmethod
    def method(self): ...


class Concrete(Abstract):
    def method(self):
        return self.value


T = TypeVar("T")


class Box(Generic[T]):
    def __init__(self, value):
        self.value = value


@dataclass
class Slots:
    __slots__ = ("a",)
    a: int


class Colour(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    a: int
    b: int


class List(list):
    pass


class WithState(Plain):
    def __getstate__(self):
        return {"kept": 1}


class WithSetState(Plain):
    def __setstate__(self, state):
        self.restored = state


class WithReduce(Plain):
    def __reduce__(self):
        return WithReduce, (), {"reduced": True}


class WithNew(Plain):
    def __new__(cls, *args):
        made = super().__new__(cls)
        made.__dict__["made"] = True
        return made


class WithArguments(Plain):
    def __getnewargs__(self):
        return ()


class Registered(Plain):
    pass


copyreg.pickle(Registered, lambda one: (Registered, (), {"registered": len(one.__dict__)}))


def form(obj):
    """The first byte of what the queue sends."""
    queue = gm.Queue()
    queue.put(obj)
    return gm.Queue.attach(queue.name, serializer="raw").get()[:1]


def through(*objects):
    queue = gm.Queue()
    queue.put_many(objects)
    return queue.get_many()


@pytest.mark.parametrize(
    "obj",
    [
        Plain(),
        Plain(a=1, b=[Plain(c="x"), Child()], d={"e": Data(1)}),
        Data(3, "y", [Data(4), (Frozen(5),)]),
        Frozen(2),
        Child(z=2.5),
        Data([Data(i) for i in range(25)]),
    ],
    ids=repr,
)
def test_a_plain_classs_instances_need_no_pickle(obj):
    assert form(obj) == PLAIN
    (got,) = through(obj)
    assert got == obj
    assert type(got) is type(obj)


def test_abstract_bases_and_generic_ones_are_plain_too():
    concrete, box = Concrete(), Box(7)
    concrete.value = 5
    assert form(concrete) == form(box) == PLAIN
    got, other = through(concrete, box)
    assert got.method() == 5
    assert other.value == 7


@pytest.mark.parametrize(
    "obj",
    [
        Slots(3),
        Colour.RED,
        Pair(1, 2),
        List([1]),
        WithState(a=1),
        WithSetState(a=1),
        WithReduce(a=1),
        WithNew(),
        WithArguments(a=1),
        Registered(a=1),
        ValueError("x"),
    ],
    ids=lambda obj: type(obj).__name__,
)
def test_what_says_how_to_pickle_it_goes_by_pickle(obj):
    assert form(obj) != PLAIN
    (got,) = through(obj)
    assert type(got) is type(obj)
    assert getattr(got, "__dict__", None) == getattr(pickle.loads(pickle.dumps(obj)), "__dict__", None)


def test_instances_that_occur_twice_or_in_themselves_keep_their_identity():
    inner = Plain(x=1)
    loop = Plain(pair=(inner, inner))
    loop.myself = loop
    shared = Plain()
    holder = Plain(a=shared, b=shared.__dict__)
    got, other = through(loop, holder)
    assert got.myself is got
    assert got.pair[0] is got.pair[1]
    assert other.a.__dict__ is other.b or other.a.__dict__ == other.b


def test_a_class_that_changes_is_looked_at_again():
    class_ = type("Changing", (), {"__module__": __name__})
    globals()["Changing"] = class_
    try:
        obj = class_()
        obj.a = 1
        assert form(obj) == PLAIN
        class_.__reduce__ = lambda self: (Plain, ())
        assert form(obj) != PLAIN
        (got,) = through(obj)
        assert got == Plain()
        del class_.__reduce__
        assert form(obj) == PLAIN
        copyreg.pickle(class_, lambda self: (Plain, (), {"by": "copyreg"}))
        (got,) = through(obj)
        assert got == Plain(by="copyreg")
    finally:
        copyreg.dispatch_table.pop(class_, None)
        del globals()["Changing"]


def test_a_class_that_is_not_under_its_name_is_refused_as_pickle_does():
    class Local:
        pass

    queue = gm.Queue()
    with pytest.raises((AttributeError, pickle.PicklingError)):
        queue.put(Local())
    hidden = type("Plain", (), {"__module__": __name__})
    with pytest.raises(pickle.PicklingError):
        queue.put(hidden())


def test_a_message_that_names_no_class_of_plain_instances_is_a_typed_error():
    queue = gm.Queue()
    raw = gm.Queue.attach(queue.name, serializer="raw")
    for name in (
        b"os\0system",
        b"os",
        b"",
        b"builtins\0int",
        f"{__name__}\0WithSetState".encode(),
        b"\xff\0\xff",
    ):
        raw.put(PLAIN + b"\x10" + bytes([len(name)]) + name + b"\0\0\0\0")
        with pytest.raises(ValueError):  # text that is none, too
            queue.get()
    raw.put(PLAIN + b"\x10" + bytes([6]) + b"nosuch\0x" + b"\0\0\0\0")
    with pytest.raises((ValueError, ImportError)):
        queue.get()


@pytest.mark.parametrize("copy", [True, False])
def test_arrays_within_instances_come_out_as_they_went_in(copy):
    queue = gm.Queue()
    sample = Plain(
        observations=np.arange(4000.0).reshape(40, 100), actions=np.arange(5), strided=np.ones((99, 99))[::2]
    )
    queue.put(sample)
    assert form(sample) == PLAIN
    batch = queue.get_many(copy=copy)
    (got,) = batch
    for name, array in sample.__dict__.items():
        np.testing.assert_array_equal(getattr(got, name), array)
    del got
    if not copy:
        batch.release()
