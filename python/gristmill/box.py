"""gm.Box: shared state that is read in place, never torn, and never blocked by a dead writer.

box = gm.Box(lr=3e-4, step=0, phase="warmup", weights=np.zeros(1000, "f4"))
box.lr = 1e-4                      # one new version
box.update(step=7, phase="run")    # one new version of both
with box.pin() as pin:             # the newest arrays, in place
    pin["weights"].sum()
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import itertools
import os
import threading
from collections import namedtuple
from collections.abc import AsyncIterator, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from gristmill import _box
from gristmill._box import BoxBase, BoxClosedError

if TYPE_CHECKING:
    import numpy as np
    import torch

__all__ = ["Bounded", "Box", "BoxClosedError", "BoxPin"]

_numbers = itertools.count()
# Room for a text or bytes whose capacity was not declared.
_ROOM = 64
_WATCH_SLICE_S = 0.05


class Bounded:
    """The initial value of a str or bytes field and its capacity in bytes: gm.Bounded("warmup", 200)."""

    def __init__(self, value: str | bytes, capacity: int) -> None:
        self.value = value
        self.capacity = capacity


class BoxPin:
    """One version in place: pin["weights"] is a read-only array that looks into the box.

    Unpinned at the end of the `with` block, by release(), or when the pin and all its arrays are gone. Arrays
    must not be used after the pin was released explicitly.
    """

    def __init__(self, box: Box, names: tuple[str, ...]) -> None:
        self._pin = _box.pin(box)
        self._fields = box.fields
        self._names = names

    @property
    def version(self) -> int:
        return self._pin.version

    def __getitem__(self, name: str) -> Any:
        """The field of this version; raises KeyError, and ValueError when the pin is released."""
        return self._pin[name]

    def tensor(self, name: str) -> torch.Tensor:
        """The array as a tensor over the same memory. Reading only: torch knows no read-only tensors."""
        from gristmill import _tensors

        return _tensors.over(self._pin[name], self._fields[name][0])

    def tensors(self) -> dict[str, torch.Tensor]:
        """Every array, for torch.func.functional_call(module, pin.tensors(), …)."""
        return {name: self.tensor(name) for name in self._fields}

    def release(self) -> None:
        """Idempotent."""
        self._pin.release()

    def __enter__(self) -> Any:
        # pin("weights") is that array, pin("a", "b") a tuple of arrays, pin() the pin itself.
        if not self._names:
            return self
        views = tuple(self._pin[name] for name in self._names)
        return views[0] if len(views) == 1 else views

    def __exit__(self, *exception: object) -> None:
        self.release()


class _Write:
    """What `with box.write() as w` hands out: reads see what was assigned, the box sees it at the end."""

    def __init__(self, box: Box) -> None:
        object.__setattr__(self, "_box", box)
        object.__setattr__(self, "_held", _box.begin_write(box, None))
        object.__setattr__(self, "_changes", {})

    def __getattr__(self, name: str) -> Any:
        changes = self._changes
        return changes[name] if name in changes else getattr(self._box, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._changes.update(self._box._flatten({name: value}))

    def __enter__(self) -> _Write:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._changes:
                self._held.commit(self._changes)
        finally:
            self._held.release()


class Box(BoxBase):
    """Named, typed fields in shared memory: any process writes, in turns, and any number reads.

    Each keyword is a field, and its value the initial one: bool, int (64 bits), float, str and bytes
    (gm.Bounded declares the capacity; 64 bytes at least otherwise), datetime, NumPy arrays, tensors, and
    dataclasses of these. A positional argument is a dataclass, or a mapping of names to values such as a
    state dict. The initial values are version 1.

    box.lr reads, box.lr = 1e-3 writes, with errors that name the field: TypeError (another type, dtype or
    shape), ValueError (too long), OverflowError, AttributeError (no such field), PermissionError (read-only),
    BoxClosedError. Arrays are written and read as copies; pin() is without. A write of some arrays copies
    the others over: put what changes together into one box.
    """

    def __init__(self, schema: Any = None, /, *, name: str | None = None, **fields: Any) -> None:
        values: dict[str, Any] = {}
        groups: dict[str, type] = {}
        if dataclasses.is_dataclass(schema):
            shown = schema() if isinstance(schema, type) else schema
            fields = {f.name: getattr(shown, f.name) for f in dataclasses.fields(shown)} | fields
        elif schema is not None:
            fields = dict(_mapping(schema)) | fields
        for key, value in fields.items():
            _flatten_into(values, groups, key, value)
        scalars: list[tuple[str, str, int]] = []
        arrays: dict[str, tuple[str, tuple[int, ...]]] = {}
        initial: dict[str, Any] = {}
        for key, value in values.items():
            _declare(key, value, scalars, arrays, initial)
        _refuse_reserved([*values, *groups])
        if name is None:
            from gristmill import segment_name

            name = segment_name("box", f"{os.getpid()}.{next(_numbers)}")
        _box.create(self, name, scalars, arrays, _snapshot_type)
        self._groups = groups
        _box.update(self, initial, None)

    @classmethod
    def create(cls, name: str, fields: Mapping[str, tuple[Any, Any]]) -> Box:
        """Creates the segment `name` (see segment_name) of arrays {name: (dtype, shape)}, all zeros."""
        box = cls.__new__(cls)
        _box.create(box, name, [], dict(fields), _snapshot_type)
        box._groups = {}
        return box

    @classmethod
    def attach(
        cls,
        name: str,
        timeout: float = 5.0,
        *,
        readonly: bool = False,
        types: Mapping[str, type] | None = None,
    ) -> Box:
        """Attaches to an existing box. Raises SegmentError.

        readonly maps it for reading only: no pins, and watch() looks for a new version once a millisecond.
        types: the dataclasses of its groups; without them a group reads as a named tuple.
        """
        box = cls.__new__(cls)
        _box.attach(box, name, timeout, readonly, _snapshot_type)
        box._groups = dict(types or {})
        return box

    def __reduce__(self) -> tuple[Any, ...]:
        return _reattach, (type(self), self.name, self.readonly, self._groups)

    @property
    def name(self) -> str:
        return _box.name(self)

    @property
    def readonly(self) -> bool:
        return _box.readonly(self)

    @property
    def fields(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The arrays: {name: (dtype, shape)}."""
        known = self.__dict__.get("_fields")
        if known is None:
            known = self._fields = _box.arrays(self)
        return known

    @property
    def scalars(self) -> dict[str, str]:
        """The other fields: {name: type}."""
        return {name: kind for name, kind, _ in _box.scalars(self)}

    @property
    def skipped_publishes(self) -> int:
        """Writes of arrays that found every slot pinned."""
        return _box.skipped_publishes(self)

    def unlink(self) -> None:
        """Removes the name; those who are attached stay so."""
        _box.unlink(self)

    def write(self) -> _Write:
        """`with box.write() as w: w.step += 1`: all assignments become one version at the end, or none if the
        block raises. No other writer comes between; readers see the version before."""
        return _Write(self)

    def read_into(self, fields: str | Mapping[str, Any], out: Any = None) -> int:
        """Copies arrays of one version into existing memory (arrays or tensors); returns the version."""
        return _box.read_into(self, {fields: out} if isinstance(fields, str) else dict(fields))

    def read(self) -> tuple[int, dict[str, np.ndarray]]:
        """(version, {name: array}): a consistent copy of all arrays."""
        snapshot = self.snapshot()
        names = [name for name, _, _ in _box.scalars(self)] + list(self.fields)
        return snapshot[-1], {n: v for n, v in zip(names, snapshot[:-1], strict=True) if n in self.fields}

    def pin(self, *names: str) -> BoxPin:
        """Pins the newest version of the arrays, without a copy, until the end of the `with` block."""
        return BoxPin(self, names)

    def watch(self, version: int, timeout: float | None = None, *, spin: float | None = None) -> int:
        """Waits for a version above `version`; returns the newest. Raises TimeoutError.

        spin: seconds to look before sleeping; by default briefly, and not at all where cores are scarce.
        """
        return _box.watch(self, version, timeout, spin)

    async def awatch(self, version: int, timeout: float | None = None) -> int:
        """As watch(), for asyncio: a thread sleeps meanwhile, the event loop goes on."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[int] = loop.create_future()
        over = threading.Event()

        def settle(newest: int | None, error: BaseException | None) -> None:
            if result.done():
                return
            if error is not None:
                result.set_exception(error)
            elif newest is not None:
                result.set_result(newest)

        def sleep() -> None:
            newest, error = None, None
            try:
                while newest is None and not over.is_set():
                    newest = _box.watch_once(self, version, _WATCH_SLICE_S, None)
            except BaseException as raised:
                error = raised
            if not over.is_set():
                loop.call_soon_threadsafe(settle, newest, error)

        threading.Thread(target=sleep, daemon=True, name="gristmill-awatch").start()
        try:
            async with asyncio.timeout(timeout):
                return await result
        finally:
            over.set()

    def changes(self, timeout: float | None = None) -> Iterator[Any]:
        """The newest snapshot, then one for each change that is seen; versions that pass in between are left
        out. Ends with TimeoutError when none comes within `timeout` seconds."""
        while True:
            snapshot = self.snapshot()
            yield snapshot
            self.watch(snapshot.version, timeout)

    async def achanges(self) -> AsyncIterator[Any]:
        """As changes(), for asyncio."""
        while True:
            snapshot = self.snapshot()
            yield snapshot
            await self.awatch(snapshot.version)

    def publish(self, values: Any, timeout: float | None = None) -> int:
        """Writes every array as one new version and returns its number: a mapping, a state dict,
        or a torch module (its parameters and buffers). Raises TypeError or KeyError for another layout."""
        given = dict(_mapping(values))
        self._check_layout(given)
        return _box.update(self, given, timeout)

    def load_into(self, module: torch.nn.Module) -> int:
        """Copies the newest version into a module's parameters and buffers; returns the version."""
        import torch

        state = dict(module.state_dict(keep_vars=True))
        self._check_layout(state)
        with self.pin() as pin, torch.no_grad():
            for name, tensor in state.items():
                tensor.copy_(pin.tensor(name))
            return pin.version

    def _check_layout(self, given: Mapping[str, Any]) -> None:
        fields = self.fields
        for name, (dtype, shape) in fields.items():
            if name not in given:
                raise KeyError(f"field '{name}' is missing; expected {dtype} {list(shape)}")
            value = given[name]
            if hasattr(value, "dtype") and hasattr(value, "shape"):
                from gristmill._tensors import dtype_of, is_tensor

                has = dtype_of(value)
                if dtype == "bfloat16" and not is_tensor(value) and has == "uint16":
                    has = dtype
                if has != dtype or tuple(value.shape) != tuple(shape):
                    raise TypeError(
                        f"field '{name}': expected {dtype} {list(shape)}, got {has} {list(value.shape)}"
                    )
        for name in given:
            if name not in fields:
                raise KeyError(f"no field '{name}' in the box; expected one of: {', '.join(fields)}")

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.fields, *self.scalars})

    def __repr__(self) -> str:
        if self.closed:
            return "<Box, closed>"
        return f"<Box {self.name}, version {self.version}: {', '.join([*self.scalars, *self.fields])}>"

    def __enter__(self) -> Box:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # Called by BoxBase for names that are no fields of its own.

    def _get_other(self, name: str) -> Any:
        if self.closed:
            raise BoxClosedError("the box is closed")
        names = self._group_fields(name)
        if not names:
            raise AttributeError(self._unknown(name))
        snapshot = self.snapshot()
        order = [n for n, _, _ in _box.scalars(self)] + list(self.fields)
        values = {n[len(name) + 1 :]: snapshot[order.index(n)] for n in names}
        return _assemble(name, values, self._groups)

    def _set_other(self, name: str, value: Any) -> None:
        if self.closed:
            raise BoxClosedError("the box is closed")
        if not self._group_fields(name):
            raise AttributeError(self._unknown(name))
        _box.update(self, self._flatten({name: value}), None)

    def _group_fields(self, name: str) -> list[str]:
        names = [n for n, _, _ in _box.scalars(self)] + list(self.fields)
        return [n for n in names if n.startswith(name + ".")]

    def _unknown(self, name: str) -> str:
        return f"no field '{name}'; expected one of: {', '.join([*self.scalars, *self.fields])}"

    def _flatten(self, values: Mapping[str, Any]) -> dict[str, Any]:
        flat: dict[str, Any] = {}
        known = {*self.scalars, *self.fields}
        for key, value in values.items():
            _flatten_into(flat, {}, key, value)
        for key in flat:
            if key not in known:
                raise AttributeError(self._unknown(key))
        return flat


def _reattach(cls: type[Box], name: str, readonly: bool, groups: dict[str, type]) -> Box:
    return cls.attach(name, readonly=readonly, types=groups)


def _mapping(values: Any) -> Mapping[str, Any]:
    if hasattr(values, "state_dict"):
        values = values.state_dict()
    if not isinstance(values, Mapping):
        raise TypeError(f"expected a mapping, a state dict or a module, got {type(values).__name__}")
    return values


def _flatten_into(flat: dict[str, Any], groups: dict[str, type], key: str, value: Any) -> None:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        groups[key] = type(value)
        for field in dataclasses.fields(value):
            _flatten_into(flat, groups, f"{key}.{field.name}", getattr(value, field.name))
    else:
        flat[key] = value


def _assemble(prefix: str, values: dict[str, Any], groups: Mapping[str, type]) -> Any:
    nested: dict[str, Any] = {}
    for name, value in values.items():
        head, _, rest = name.partition(".")
        if rest:
            nested.setdefault(head, {})[rest] = value
        else:
            nested[head] = value
    for head, value in nested.items():
        if isinstance(value, dict):
            nested[head] = _assemble(f"{prefix}.{head}", value, groups)
    made = groups.get(prefix)
    if made is None:
        made = namedtuple(prefix.rpartition(".")[2], nested, rename=True)
        return made(*nested.values())
    return made(**nested)


def _declare(
    name: str,
    value: Any,
    scalars: list[tuple[str, str, int]],
    arrays: dict[str, tuple[str, tuple[int, ...]]],
    initial: dict[str, Any],
) -> None:
    from gristmill import _tensors

    capacity = 0
    if isinstance(value, Bounded):
        value, capacity = value.value, value.capacity
        if not isinstance(value, str | bytes):
            raise TypeError(f"field '{name}': only str and bytes have a capacity, got {type(value).__name__}")
    if _tensors.is_tensor(value) or (
        hasattr(value, "dtype") and hasattr(value, "shape") and not _is_number(value)
    ):
        arrays[name] = (_tensors.dtype_of(value), tuple(value.shape))
    elif isinstance(value, bool) or (_is_number(value) and value.dtype.kind == "b"):
        scalars.append((name, "bool", 0))
    elif isinstance(value, int) or (_is_number(value) and value.dtype.kind in "iu"):
        scalars.append((name, "int", 0))
    elif isinstance(value, float) or (_is_number(value) and value.dtype.kind == "f"):
        scalars.append((name, "float", 0))
    elif isinstance(value, str | bytes):
        room = capacity or max(_ROOM, len(value.encode() if isinstance(value, str) else value))
        scalars.append((name, "str" if isinstance(value, str) else "bytes", room))
    elif isinstance(value, datetime.datetime):
        scalars.append((name, "datetime_utc" if value.tzinfo else "datetime", 0))
    else:
        raise TypeError(
            f"field '{name}': expected a bool, int, float, str, bytes, datetime, array, tensor or dataclass, "
            f"got {type(value).__name__}"
        )
    initial[name] = value


def _is_number(value: Any) -> bool:
    """A NumPy scalar: it has a dtype, but is no array."""
    return (
        hasattr(value, "dtype")
        and hasattr(value, "item")
        and not hasattr(value, "__array_finalize__")
        and (getattr(value, "ndim", None) == 0 and not hasattr(value, "detach"))
    )


def _snapshot_type(names: list[str]) -> type:
    labels = [name.replace(".", "_") for name in names]
    return namedtuple("Snapshot", [*labels, "version"], rename=True)


def _refuse_reserved(names: list[str]) -> None:
    for name in names:
        if name.startswith("_") or name in _RESERVED:
            raise ValueError(
                f"field '{name}': that name is Box's own, or begins with an underscore; choose another"
            )


_RESERVED = {name for name in dir(Box) if not name.startswith("_")}
_box.set_plain_type(Box)
