"""The command reference, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

INTRODUCTION = """# Commands

Every command prints this with `--help`. Exit codes: 0; 1 when it failed; 2 for bad input; 130 after Ctrl-C,
143 after SIGTERM.
"""


def commands() -> Iterator[tuple[str, Any]]:
    """("gristmill bench box", its command) of each command that does something."""
    from gristmill.cli_app import app, bench_app, soak_app

    for name, command in typer.main.get_command(app).commands.items():
        if name == "bench":
            for inner, benchmark in typer.main.get_command(bench_app()).commands.items():
                yield f"gristmill bench {inner}", benchmark
        else:
            yield f"gristmill {name}", typer.main.get_command(soak_app()) if name == "soak" else command


def page() -> str:
    return INTRODUCTION + "".join(_section(name, command) for name, command in commands())


def _section(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join([name, *(_argument(p) for p in arguments), "[OPTIONS]"])
    lines = ["", f"## {name}", "", command.help or "", "", "```text", usage, "```", ""]
    rows = [f"| `{p.metavar or p.name.upper()}` | {_cell(p)} |" for p in arguments]
    rows += [f"| `{_option(p)}` | {_cell(p)} |" for p in command.params if p.param_type_name == "option"]
    if rows:
        lines += ["| | |", "| --- | --- |", *rows, ""]
    # "Example: A, or a grid: B" names two.
    examples = (command.epilog or "").removeprefix("Example: ").split(", or ")
    lines += [
        "```console",
        *(f"$ gristmill {text.partition('gristmill ')[2]}" for text in examples),
        "```",
        "",
    ]
    return "\n".join(lines)


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name.upper()).strip("[]")
    if parameter.nargs == -1 and not name.endswith("…"):
        name += " …"
    return name if parameter.required else f"[{name}]"


def _option(parameter: Any) -> str:
    values = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"
    return f"{parameter.opts[0]}{values}"


def _cell(parameter: Any) -> str:
    text = (parameter.help or "").strip()
    default = parameter.default
    if default is not None and default is not False and default != () and default != []:
        text += f" Default: `{default}`."
    if getattr(parameter, "min", None) is not None:
        limits = f"from {parameter.min}" + (f" to {parameter.max}" if parameter.max is not None else "")
        text += f" ({limits})"
    return text.replace("|", "\\|")
