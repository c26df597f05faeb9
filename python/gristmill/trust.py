"""Whose code runs: what a run's folder of another's may make this process load.

A configuration names an environment, and some names are code: a library (``plugin:``), or a Python module
that registers the environment (``gymnasium:MODULE:ID``). Whoever trains from a configuration asked for it.
Whoever resumes or evaluates a run did not, perhaps: the folder may come from anybody. So such names are
accepted there only when this user has trained with them before, on this machine, or says so.
"""

from __future__ import annotations

import contextlib
import os

from gristmill import _core

# Environments of Gymnasium's own that make one of another package, by a name that may hold a module.
_MAKE_OTHERS = ("GymV21Environment", "GymV26Environment")


def code_of(env_id: str) -> str:
    """The code that an environment's name loads besides ours, Gymnasium's and EnvPool's; "" for none.

    A library by its absolute path: a relative one is another in another folder.
    """
    kind, _, rest = env_id.partition(":")
    if kind == "plugin":
        return "the library " + os.path.abspath(rest.rpartition(":")[0])
    if kind == "envpool":
        return ""
    name = rest if kind == "gymnasium" else env_id
    module, _, last = name.rpartition(":")
    if module:
        return "the Python module " + module
    if last.startswith(_MAKE_OTHERS):
        return "what " + last + " makes"
    return ""


def remember(env_id: str) -> None:
    """The user trains with it. Where nothing can be remembered, resuming asks."""
    code = code_of(env_id)
    if not code or code in _remembered():
        return
    with contextlib.suppress(OSError):
        path = _record()
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(
            os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8"
        ) as file:
            file.write(repr(code) + "\n")


def require(env_id: str, where: str | os.PathLike[str], trusted: bool) -> None:
    """Raises ConfigError unless `env_id`, from a run's folder, loads no code, or what the user trained with,
    or is trusted."""
    code = code_of(env_id)
    if not code or trusted or code in _remembered():
        return
    raise _core.ConfigError(
        f"{os.fspath(where)}: its env.id, {env_id}, would run {code}, which you have not trained with on "
        "this machine. If you know whose run this is and trust its code, add --trust (in Python: trust=True)"
    )


def _record() -> str:
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "gristmill", "trusted_code")


def _remembered() -> set[str]:
    import ast

    try:
        with open(_record(), encoding="utf-8") as file:
            # What another user may write is no memory of this one's.
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return set()
            return {ast.literal_eval(line) for line in file.read().splitlines() if line}
    except (OSError, ValueError, SyntaxError):
        return set()
