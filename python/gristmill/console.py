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
    print(styled(printable(text), "31", sys.stderr), file=sys.stderr)
    return code


def printable(text: str) -> str:
    """As it may be shown on a terminal: what an environment, or a run's folder, puts into a text must not
    move the cursor, change the window's title or turn the direction of writing. Lines and tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in text
    )


def styled(text: str, style: str, stream: TextIO) -> str:
    """With an ANSI style (31: red, 32: green, 2: dim) when `stream` is a terminal that wants colours."""
    wanted = stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    return f"\x1b[{style}m{text}\x1b[0m" if wanted else text


class Interruptible:
    """What Ctrl-C and SIGTERM do, to a command and to its process group alike.

    The first one raises: an orderly end, with a checkpoint, that waits a second for the workers. The second
    kills the workers instead of waiting for them; the checkpoint is still written. The third ends at once:
    no checkpoint, but no process and no shared memory is left either.

    Main thread only; entered for the whole life of a command. The later ones are noticed by a thread, because
    the main one may be at a checkpoint, in C++, when they come.
    """

    def __enter__(self) -> Interruptible:
        import _thread

        self._raises, self._interrupted = True, False
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)
        _thread.start_new_thread(self._watch, ())
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

    def _watch(self) -> None:
        """The thread: every signal is a byte, its number."""
        count = 0
        while True:
            for number in os.read(self._reader, 64):
                count += number in (signal.SIGINT, signal.SIGTERM)
                if count == 2:
                    _say("not waiting for the workers; once more ends at once, without a checkpoint\n")
                    _kill_children()
                elif count > 2:
                    self._end_at_once(number)

    def _end_at_once(self, number: int) -> None:
        try:
            _say("ended at once, without a checkpoint\n")
            _kill_children()
            _remove_segments()
        finally:
            os._exit(TERMINATED if number == signal.SIGTERM else INTERRUPTED)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, text.encode())


def _kill_children() -> None:
    """Those of this process, waiting a moment for them to be gone."""
    import time

    for _ in range(100):
        living = _children()
        for pid in living:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not living:
            return
        time.sleep(0.005)


def _children() -> list[int]:
    """Living children. From every process's parent: the list of a task's children is not in every kernel."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="latin-1") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it ended meanwhile
        if int(parent) == os.getpid() and state not in "ZX":
            found.append(int(name))
    return found


def _remove_segments() -> None:
    from gristmill import _core

    for segment in _core.list_segments():
        if segment.pid == os.getpid():
            with contextlib.suppress(OSError):
                os.unlink(f"/dev/shm{segment.name}")


# The command line's; cli.main() enters it.
interruptible = Interruptible()
