"""What a run's own workers need besides the board (an environment, a policy), handed over in memory.

It is pickled (by cloudpickle: classes and functions of a script or a notebook go by value, those of modules
by name) into an anonymous, sealed file that only processes of the same user can open, and only while the run
lives: nothing is written to a disk. Unpickling runs code, which is what it is for; it comes from the process
that started the worker.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import sys
from typing import Any

_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class PayloadError(ValueError):
    """Something cannot be handed to a worker. Trying again is no help."""


class Payload:
    """Kept by the run; `path` is what workers load() from. close() ends it."""

    def __init__(self, value: Any) -> None:
        import cloudpickle

        try:
            data = cloudpickle.dumps((list(sys.path), _dumped(value)))
        except Exception as error:
            raise PayloadError(
                f"it cannot be pickled for the workers: {type(error).__name__}: {error}"
            ) from error
        self._fd = os.memfd_create("gristmill-payload", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        with open(self._fd, "wb", closefd=False) as file:
            file.write(data)
        fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, _SEALS)
        self.path = f"/proc/{os.getpid()}/fd/{self._fd}"

    def close(self) -> None:
        """Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def load(path: str) -> Any:
    """By a worker. Modules are found where the run's process found them. Raises PayloadError."""
    with open(path, "rb") as file:
        paths, data = pickle.load(file)
    sys.path[:] = paths
    try:
        return pickle.loads(data)
    except Exception as error:
        raise PayloadError(
            f"the environment or the policy cannot be loaded in a worker: {type(error).__name__}: {error}. "
            f"Put them into a module that can be imported, or into the script itself"
        ) from error


def _dumped(value: Any) -> bytes:
    # Nested, so that the paths are in place before anything is imported.
    import cloudpickle

    return cloudpickle.dumps(value)
