"""The box's typed fields from Python: attributes, updates, write blocks, snapshots, tensors, errors."""

import asyncio
import dataclasses
import datetime
import gc
import multiprocessing
import os
import pickle
import signal
import threading

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


@pytest.fixture
def box():
    made = gm.Box(
        lr=3e-4,
        step=0,
        phase="warmup",
        done=False,
        token=b"\0\1",
        since=datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
        at=datetime.datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC),
        weights=np.arange(6, dtype="f4").reshape(2, 3),
    )
    yield made
    if not made.closed:
        made.unlink()


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


def test_an_update_is_one_version_over_scalars_and_arrays(box):
    assert box.update(lr=0.5, step=3) == 2
    assert box.update(step=4, phase="run", weights=np.full((2, 3), 2, "f4")) == 3
    snapshot = box.snapshot()
    assert (snapshot.lr, snapshot.step, snapshot.phase, snapshot.version) == (0.5, 4, "run", 3)
    assert snapshot.weights.min() == 2


def test_a_refused_update_changes_nothing(box):
    with pytest.raises(TypeError, match="'step': expected int, got str"):
        box.update(lr=0.5, step="x")
    with pytest.raises(AttributeError, match="no field 'lrr'; expected one of: lr, step"):
        box.update(lrr=0.5)
    assert box.version == 1
    assert box.lr == 3e-4


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


def test_a_write_block_is_one_version_or_none(box):
    with box.write() as w:
        w.step += 1
        w.lr = w.step / 2
        w.weights = np.full((2, 3), 8, "f4")
        assert box.step == 0
        assert w.step == 1
    assert (box.version, box.step, box.lr, box.weights.min()) == (2, 1, 0.5, 8)

    def change_my_mind():
        with box.write() as w:
            w.step = 99
            raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError, match="changed my mind"):
        change_my_mind()
    assert (box.version, box.step) == (2, 1)
    box.step = 2


def _add(box, times):
    for _ in range(times):
        with box.write() as w:
            w.step += 1


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_write_blocks_of_several_processes_take_turns(box, method):
    context = multiprocessing.get_context(method)
    writers = [context.Process(target=_add, args=(box, 200)) for _ in range(2)]
    for writer in writers:
        writer.start()
    _add(box, 200)
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert box.step == 600


def _die_writing(box):
    with box.write() as w:
        w.step = 5
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_writer_killed_in_its_block_leaves_the_version_before_and_frees_the_turn(box):
    child = multiprocessing.get_context("fork").Process(target=_die_writing, args=(box,))
    child.start()
    child.join(30)
    assert child.exitcode == -signal.SIGKILL
    assert box.step == 0
    box.step = 6
    assert box.update(weights=np.zeros((2, 3), "f4"), step=7) == 3


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


def _read_only_child(name, answers):
    box = gm.Box.attach(name, readonly=True)
    answers.put((box.step, box.weights.tolist()))
    for use in (lambda: box.update(step=1), lambda: setattr(box, "step", 1), box.pin, box.write):
        with pytest.raises(PermissionError) as raised:
            use()
        answers.put(str(raised.value))
    answers.put(box.watch(box.version, timeout=30))
    answers.put(box.snapshot().step)


def test_a_read_only_box_reads_and_watches_and_refuses_the_rest(box):
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    child = context.Process(target=_read_only_child, args=(box.name, answers))
    child.start()
    assert answers.get(timeout=60) == (0, [[0, 1, 2], [3, 4, 5]])
    for _ in range(4):
        assert "read-only" in answers.get(timeout=30)
    done = threading.Event()

    def write():
        while not done.wait(0.05):
            box.step = 9

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert answers.get(timeout=30) >= 2
        assert answers.get(timeout=30) == 9
    finally:
        done.set()
        writer.join()
    child.join(30)


def test_no_snapshot_mixes_two_updates():
    box = gm.Box(a=0, b=0, data=np.zeros(500, "i8"))
    done = threading.Event()

    def write():
        number = 0
        while not done.is_set():
            number += 1
            if number % 2:
                box.update(a=number, b=number, data=np.full(500, number))
            else:
                with box.write() as w:
                    w.a = w.b = number
                    w.data = np.full(500, number)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reader = gm.Box.attach(box.name, readonly=True)
        for _ in range(1000):
            for each in (box, reader):
                snapshot = each.snapshot()
                assert snapshot.a == snapshot.b
                assert snapshot.data.min() == snapshot.data.max() == snapshot.a
    finally:
        done.set()
        writer.join(30)


def test_changes_yields_each_version_that_is_seen(box):
    changes = box.changes(timeout=30)
    assert next(changes).step == 0
    threading.Timer(0.02, setattr, (box, "step", 3)).start()
    assert next(changes).step == 3
    with pytest.raises(TimeoutError, match="no version after"):
        list(box.changes(timeout=0.01))


def test_awatch_waits_in_asyncio_while_the_loop_goes_on(box):
    async def main():
        ticks = 0
        waiting = asyncio.ensure_future(box.awatch(box.version))
        while ticks < 3:
            await asyncio.sleep(0.001)
            ticks += 1
        assert not waiting.done()
        box.step = 1
        assert await waiting == 2
        with pytest.raises(TimeoutError):
            await box.awatch(2, timeout=0.01)
        cancelled = asyncio.ensure_future(box.awatch(2))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    asyncio.run(asyncio.wait_for(main(), 30))


def test_watch_with_a_spin_budget_sees_the_next_version(box):
    threading.Timer(0.01, setattr, (box, "step", 3)).start()
    assert box.watch(1, timeout=30, spin=0.005) == 2


def test_attaching_to_something_else_is_a_typed_error():
    queue = gm.TrajectoryQueue.create(gm.segment_name("test", "not-a-box"), {"a": ("float32", (2,))}, 4)
    with pytest.raises(gm.SegmentError) as raised:
        gm.Box.attach(queue.name)
    assert raised.value.reason == "wrong_kind"
    with pytest.raises(gm.SegmentError):
        gm.Box.attach(gm.segment_name("test", "nobody"), timeout=0.01)
