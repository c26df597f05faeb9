"""How the reference reads the package: beyond what griffe does by itself.

- A class attribute's comment on the same line is its description: `frames: int  # learned from`.
- `name: what it means` in a docstring is set off where `name` is a parameter.
- Defaults that are constants of the module are shown by their values.
- The compiled modules' annotations are told in the words that a caller uses.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_PLAIN = (
    (re.compile(r"(typing\.)?SupportsInt \| (typing\.)?SupportsIndex"), "int"),
    (re.compile(r"(typing\.)?SupportsFloat \| (typing\.)?SupportsIndex"), "float"),
    (re.compile(r"numpy\.ndarray\[typing\.Any, numpy\.dtype\[typing\.Any\]\]"), "numpy.ndarray"),
    (re.compile(r"\b(typing|collections\.abc)\."), ""),
)


class Docstrings(griffe.Extension):
    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        for member in cls.members.values():
            if member.is_attribute and not member.has_docstring and member.lineno is not None:
                line = cls.lines_collection[cls.filepath][(member.endlineno or member.lineno) - 1]
                _, mark, words = line.partition("  # ")
                if mark:
                    member.docstring = griffe.Docstring(words.strip(), parent=member)
        initial = cls.members.get("__init__")
        if cls.docstring and isinstance(initial, griffe.Function):
            _set_off(cls.docstring, initial)

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        if func.docstring:
            _set_off(func.docstring, func)
        for parameter in func.parameters:
            if parameter.annotation is not None:
                parameter.annotation = _plain(parameter.annotation)
            # A module's constant tells a reader nothing; its value does.
            constant = func.module.members.get(str(parameter.default))
            if constant is not None and constant.is_attribute and constant.value is not None:
                parameter.default = str(constant.value)
        if func.returns is not None:
            func.returns = _plain(func.returns)

    def on_attribute(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        if attr.annotation is not None:
            attr.annotation = _plain(attr.annotation)


def _set_off(docstring: griffe.Docstring, function: griffe.Function) -> None:
    names = "|".join(re.escape(parameter.name) for parameter in function.parameters)
    if names:
        docstring.value = re.sub(rf"(?m)(^|[.;)\]] )({names}): ", r"\1**`\2`**: ", docstring.value)


def _plain(annotation: Any) -> Any:
    text = str(annotation)
    for pattern, words in _PLAIN:
        text = pattern.sub(words, text)
    return annotation if text == str(annotation) else text
