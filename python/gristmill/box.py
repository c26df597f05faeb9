"""gm.Box: shared state that is read in place, never torn, and never blocked by a dead writer.

box = gm.Box(lr=3e-4, step=0, phase="warmup", weights=np.zeros(1000, "f4"))
box.lr = 1e-4                      # one new version
box.update(step=7, phase="run")    # one new version of both
with box.pin() as pin:             # the newest arrays, in place
    pin["weights"].sum()
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from gristmill import _box
from gristmill._box import BoxBase, BoxClosedError
from gristmill.box_async import wait_for_version
from gristmill.box_pin import BoxPin
from gristmill.box_schema import (
    Bounded,
    assemble,
    flatten_into,
    mapping_of,
    refuse_reserved,
    schema_of,
    snapshot_type,
)
from gristmill.box_write import BoxWriting

if TYPE_CHECKING:
    import numpy as np
    import torch

__all__ = ["Bounded", "Box", "BoxClosedError", "BoxPin"]

_numbers = itertools.count()


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
        made = schema_of(schema, fields)
        refuse_reserved([*made.initial, *made.groups], _RESERVED)
        if name is None:
            from gristmill import segment_name

            name = segment_name("box", f"{os.getpid()}.{next(_numbers)}")
        _box.create(self, name, made.scalars, made.arrays, snapshot_type)
        self._groups = made.groups
        _box.update(self, made.initial, None)

    @classmethod
    def create(cls, name: str, fields: Mapping[str, tuple[Any, Any]]) -> Box:
        """Creates the segment `name` (see segment_name) of arrays {name: (dtype, shape)}, all zeros."""
        box = cls.__new__(cls)
        _box.create(box, name, [], dict(fields), snapshot_type)
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

        readonly maps it for reading only (one page, which holds no data, excepted: there watch() says that it
        waits). No pins, no writes.
        types: the dataclasses of its groups; without them a group reads as a named tuple.
        """
        box = cls.__new__(cls)
        _box.attach(box, name, timeout, readonly, snapshot_type)
        box._groups = dict(types or {})
        return box

    def __reduce__(self) -> tuple[Any, ...]:
        return _reattach, (type(self), self.name, self.readonly, self._groups)

    @property
    def name(self) -> str:
        """What attach() takes."""
        return _box.name(self)

    @property
    def readonly(self) -> bool:
        """Whether it was attached for reading alone."""
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

    def write(self) -> BoxWriting:
        """`with box.write() as w: w.step += 1`: all assignments become one version at the end, or none if the
        block raises. No other writer comes between; readers see the version before."""
        return BoxWriting(self)

    def read(self) -> tuple[int, dict[str, np.ndarray]]:
        """(version, {name: array}): a consistent copy of all arrays."""
        snapshot = self.snapshot()
        names = [name for name, _, _ in _box.scalars(self)] + list(self.fields)
        return snapshot[-1], {n: v for n, v in zip(names, snapshot[:-1], strict=True) if n in self.fields}

    async def awatch(self, version: int, timeout: float | None = None) -> int:
        """As watch(), for asyncio: a thread sleeps meanwhile, the event loop goes on."""
        return await wait_for_version(self, version, timeout)

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
        given = dict(mapping_of(values))
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
        return assemble(name, values, self._groups)

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
            flatten_into(flat, {}, key, value)
        for key in flat:
            if key not in known:
                raise AttributeError(self._unknown(key))
        return flat


def _reattach(cls: type[Box], name: str, readonly: bool, groups: dict[str, type]) -> Box:
    return cls.attach(name, readonly=readonly, types=groups)


_RESERVED = {name for name in dir(Box) if not name.startswith("_")}
_box.set_plain_type(Box)
