"""What every command shares: exit codes, errors in one red line, interruption."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TextIO

OK = 0
FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130


class TerminatedError(KeyboardInterrupt):
    """SIGTERM: as orderly an end as Ctrl-C's."""


def exit_code_of(command: Callable[[], int]) -> int:
    """Runs a command; errors that a user can mend become one line on stderr, without a traceback."""
    # ConfigError and SegmentError come from the compiled module, the others may come without it.
    from gristmill import _core

    try:
        return command()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else OK if ended.code is None else FAILED
    except _core.ConfigError as error:
        return failed(str(error), BAD_INPUT)
    except TerminatedError:
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return FAILED
    except (OSError, RuntimeError) as error:
        if os.environ.get("GRISTMILL_TRACEBACK"):
            raise
        return failed(str(error), FAILED)


def failed(text: str, code: int) -> int:
    """Says what went wrong, in red on a terminal; returns `code`."""
    print(styled(text, "31", sys.stderr), file=sys.stderr)
    return code


def styled(text: str, style: str, stream: TextIO) -> str:
    """With an ANSI style (31: red, 32: green, 2: dim) when `stream` is a terminal that wants colours."""
    wanted = stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return f"\x1b[{style}m{text}\x1b[0m" if wanted else text


class Interruptible:
    """While it is entered, the first Ctrl-C or SIGTERM raises; later ones are told that the end is on its
    way: it is bounded, and cutting it short would cost the checkpoint. Main thread only."""

    def __enter__(self) -> None:
        self._stopping = False
        self._former: dict[int, Any] = {
            number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)
        }

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: object) -> None:
        if self._stopping:
            os.write(2, b"stopping: writing the checkpoint, ending the workers ...\n")
            return
        self._stopping = True
        raise TerminatedError if number == signal.SIGTERM else KeyboardInterrupt
