"""The command `gristmill`."""

from __future__ import annotations

import os
import sys

from gristmill.console import exit_code_of, interruptible


def main() -> None:
    """Entry point of the console script."""
    with interruptible:
        code = exit_code_of(lambda: _run(sys.argv[1:]))
        interruptible.hold()
        _flush()
    sys.exit(code)


def _run(words: list[str]) -> int:
    if _is_plain_train(words):
        from gristmill.commands import train

        return train(words[1], [word for word in words[2:] if word != "--json"], as_json="--json" in words)
    from gristmill.cli_app import app

    app(prog_name="gristmill")  # ends by SystemExit
    return 0


def _is_plain_train(words: list[str]) -> bool:
    """`train FILE [key=value …] [--json]` is understood without typer: importing it would take longer than
    everything else before the workers start."""
    return (
        len(words) >= 2
        and words[0] == "train"
        and not words[1].startswith("-")
        and all(word == "--json" or ("=" in word and not word.startswith("-")) for word in words[2:])
    )


def _flush() -> None:
    """Whoever read our output may be gone (`gristmill … | head`): that is no error of ours."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
