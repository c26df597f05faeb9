"""What a box's fields are, from the values that they begin with; dataclasses as groups of fields."""

from __future__ import annotations

import dataclasses
import datetime
from collections import namedtuple
from collections.abc import Mapping
from typing import Any

# Room for a text or bytes whose capacity was not declared.
_ROOM = 64


class Bounded:
    """The initial value of a str or bytes field and its capacity in bytes: gm.Bounded("warmup", 200)."""

    def __init__(self, value: str | bytes, capacity: int) -> None:
        self.value = value
        self.capacity = capacity


@dataclasses.dataclass
class Schema:
    """The fields of a box to be made."""

    scalars: list[tuple[str, str, int]] = dataclasses.field(default_factory=list)  # name, type, capacity
    arrays: dict[str, tuple[str, tuple[int, ...]]] = dataclasses.field(default_factory=dict)
    initial: dict[str, Any] = dataclasses.field(default_factory=dict)
    groups: dict[str, type] = dataclasses.field(default_factory=dict)  # dataclasses, by prefix


def schema_of(schema: Any, fields: Mapping[str, Any]) -> Schema:
    """From a dataclass or a mapping, or None, and fields by keyword. Raises TypeError naming the field."""
    if dataclasses.is_dataclass(schema):
        shown = schema() if isinstance(schema, type) else schema
        fields = {f.name: getattr(shown, f.name) for f in dataclasses.fields(shown)} | dict(fields)
    elif schema is not None:
        fields = dict(mapping_of(schema)) | dict(fields)
    made = Schema()
    values: dict[str, Any] = {}
    for key, value in fields.items():
        flatten_into(values, made.groups, key, value)
    for key, value in values.items():
        _declare(made, key, value)
    return made


def mapping_of(values: Any) -> Mapping[str, Any]:
    if hasattr(values, "state_dict"):
        values = values.state_dict()
    if not isinstance(values, Mapping):
        raise TypeError(f"expected a mapping, a state dict or a module, got {type(values).__name__}")
    return values


def flatten_into(flat: dict[str, Any], groups: dict[str, type], key: str, value: Any) -> None:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        groups[key] = type(value)
        for field in dataclasses.fields(value):
            flatten_into(flat, groups, f"{key}.{field.name}", getattr(value, field.name))
    else:
        flat[key] = value


def assemble(prefix: str, values: dict[str, Any], groups: Mapping[str, type]) -> Any:
    nested: dict[str, Any] = {}
    for name, value in values.items():
        head, _, rest = name.partition(".")
        if rest:
            nested.setdefault(head, {})[rest] = value
        else:
            nested[head] = value
    for head, value in nested.items():
        if isinstance(value, dict):
            nested[head] = assemble(f"{prefix}.{head}", value, groups)
    made = groups.get(prefix)
    if made is None:
        made = namedtuple(prefix.rpartition(".")[2], nested, rename=True)
        return made(*nested.values())
    return made(**nested)


def _declare(schema: Schema, name: str, value: Any) -> None:
    from gristmill import _tensors

    scalars = schema.scalars
    capacity = 0
    if isinstance(value, Bounded):
        value, capacity = value.value, value.capacity
        if not isinstance(value, str | bytes):
            raise TypeError(f"field '{name}': only str and bytes have a capacity, got {type(value).__name__}")
    if _tensors.is_tensor(value) or (
        hasattr(value, "dtype") and hasattr(value, "shape") and not _is_number(value)
    ):
        schema.arrays[name] = (_tensors.dtype_of(value), tuple(value.shape))
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
    schema.initial[name] = value


def _is_number(value: Any) -> bool:
    """A NumPy scalar: it has a dtype, but is no array."""
    return (
        hasattr(value, "dtype")
        and hasattr(value, "item")
        and not hasattr(value, "__array_finalize__")
        and (getattr(value, "ndim", None) == 0 and not hasattr(value, "detach"))
    )


def snapshot_type(names: list[str]) -> type:
    labels = [name.replace(".", "_") for name in names]
    return namedtuple("Snapshot", [*labels, "version"], rename=True)


def refuse_reserved(names: list[str], reserved: set[str]) -> None:
    for name in names:
        if name.startswith("_") or name in reserved:
            raise ValueError(
                f"field '{name}': that name is Box's own, or begins with an underscore; choose another"
            )
