"""The configuration reference, from the one description of each option that the programs have."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

INTRODUCTION = """# Configuration

A run is described by a YAML file, in which every option may be left out. `KEY=VALUE` after the file's name,
with dotted keys, goes before it: `gristmill train configs/cartpole.yaml learner.gamma=0.99`. In Python the
same names are attributes: `config.learner.gamma = 0.99`.

`gristmill config FILE` prints what a file resolves to and where each value comes from, `gristmill options`
this list, and `gristmill schema` a JSON Schema, with which editors complete and check the file. What is
misspelt, of the wrong type or out of range is refused before anything starts, with file, line and the
nearest known name.
"""


def page() -> str:
    from gristmill import _core

    sections: dict[str, list[Any]] = {}
    for option in _core.config_options():
        section, _, _ = option.key.rpartition(".")
        sections.setdefault(section, []).append(option)
    return INTRODUCTION + "".join(_section(name, options) for name, options in sections.items())


def _section(name: str, options: Iterable[Any]) -> str:
    lines = ["", f"## {name or 'The run as a whole'}", ""]
    for option in options:
        lines += [
            f"`{option.key}` {{ #{option.key} }}",
            f":   {_sentence(option.help)}",
            f"    {_sentence(option.expected)} Default: `{option.value or chr(34) * 2}`.",
            "",
        ]
    return "\n".join(lines)


def _sentence(text: str) -> str:
    # What looks like a tag is meant as it is.
    return html.escape(text[:1].upper() + text[1:], quote=False) + "."
