"""What every command shares: exit codes, errors in one red line, interruption."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

OK = 0
FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
TERMINATED = 143


class TerminatedError(KeyboardInterrupt):
    """SIGTERM: as orderly an end as Ctrl-C's."""


def exit_code_of(command: Callable[[], int]) -> int:
    """Runs a command; errors that a user can mend become one line on stderr, without a traceback."""
    try:
        return command()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else OK if ended.code is None else FAILED
    except TerminatedError:
        return TERMINATED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return FAILED
    except (OSError, RuntimeError) as error:
        if os.environ.get("GRISTMILL_TRACEBACK"):
            raise
        return failed(str(error), FAILED)
    except ValueError as error:
        from gristmill._core import ConfigError

        if not isinstance(error, ConfigError):
            raise
        return failed(str(error), BAD_INPUT)


def failed(text: str, code: int) -> int:
    """Says what went wrong, in red on a terminal; returns `code`."""
    print(styled(text, "31", sys.stderr), file=sys.stderr)
    return code


def styled(text: str, style: str, stream: TextIO) -> str:
    """With an ANSI style (31: red, 32: green, 2: dim) when `stream` is a terminal that wants colours."""
    wanted = stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return f"\x1b[{style}m{text}\x1b[0m" if wanted else text


class Interruptible:
    """The first Ctrl-C or SIGTERM raises; later ones are told that the end is on its way: it is bounded, and
    cutting it short would cost the checkpoint. Main thread only; entered for the whole life of a command."""

    def __enter__(self) -> Interruptible:
        self._raises, self._interrupted = True, False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        # Only Python's own end is left. Whoever interrupted before gets the exit code of that.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN if self._interrupted else signal.SIG_DFL)

    def hold(self) -> None:
        """From now on nothing raises: what is left is short, and its result counts."""
        self._raises = False

    def _handle(self, number: int, _frame: object) -> None:
        self._interrupted = True
        if self._raises:
            self._raises = False
            raise TerminatedError if number == signal.SIGTERM else KeyboardInterrupt
        with contextlib.suppress(OSError):
            os.write(2, b"stopping: writing the checkpoint, ending the workers ...\n")


# The command line's; cli.main() enters it.
interruptible = Interruptible()
