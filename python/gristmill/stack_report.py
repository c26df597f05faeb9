"""A worker's answer when the supervisor asks where it hangs; rollout/stack_report.h has the other side."""

from __future__ import annotations

import faulthandler
import os
import signal

# As there.
_FILE = "gristmill-stack"
_SIGNAL = signal.SIGRTMIN + 7


def install() -> None:
    """From now on the process writes its Python stacks into a file in memory whenever it gets the signal.

    It needs no GIL: it works while the process is stuck in C code. Call once.
    """
    faulthandler.register(_SIGNAL, file=os.memfd_create(_FILE), all_threads=True)
