"""A rollout worker for environments in Python: ``python -m gristmill.worker --board NAME --index I``.

Started by the worker pool of a run; of no use by hand. The loop itself (policy, trajectories, queue) is
C++, as in gristmill-worker; only the environments are Python's. torch's Python package is not imported.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
from typing import Any

import numpy as np

from gristmill import stack_report, worker_log
from gristmill.environments import ENVPOOL, GYMNASIUM, VectorEnvironment, make_vector
from gristmill.spaces import UnusableEnvironmentError


def make_environments(env_id: str, kwargs: str, count: int, seed: int, first_index: int) -> VectorEnvironment:
    """The environments of one worker. kwargs: a JSON object, for gymnasium.make or envpool.make.

    Raises UnusableEnvironmentError for what a restart would not mend.
    """
    if not env_id.startswith((GYMNASIUM, ENVPOOL)):
        raise UnusableEnvironmentError(
            f'env.id "{env_id}" is none of ours; Gymnasium\'s are written {GYMNASIUM}ID, as in '
            f"{GYMNASIUM}LunarLander-v3, and EnvPool's {ENVPOOL}ID"
        )
    # Environments that draw from the global generators repeat themselves too.
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    return make_vector(env_id, _arguments(kwargs), count, seed, first_index)


def _arguments(kwargs: str) -> dict[str, Any]:
    try:
        arguments = json.loads(kwargs or "{}")
    except json.JSONDecodeError as error:
        raise UnusableEnvironmentError(f"env.kwargs is not JSON: {error}; it is {kwargs!r}") from None
    if not isinstance(arguments, dict):
        raise UnusableEnvironmentError(f"env.kwargs is {kwargs}; expected a JSON object")
    return arguments


def main(arguments: list[str] | None = None) -> int:
    """The process. Returns its exit status: 0 as told, 1 after an error, which is on the board."""
    parser = argparse.ArgumentParser(prog="python -m gristmill.worker", description=__doc__)
    parser.add_argument("--board", required=True, help="the run's board in shared memory")
    parser.add_argument("--index", required=True, type=int, help="this worker's row on it")
    parser.add_argument("--log-level", default="off", help="what goes to the run's log (log.workers_level)")
    given = parser.parse_args(arguments)
    # Ctrl-C reaches the whole process group: the learner decides, and tells the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stack_report.install()

    worker_log.install(given.board, given.index, given.log_level)

    from gristmill import _rollout

    return _rollout.run_worker(given.board, given.index, make_environments)


if __name__ == "__main__":
    sys.exit(main())
