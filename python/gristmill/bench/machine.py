"""What a figure was measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any


def _field(path: str, key: str) -> str:
    try:
        for line in Path(path).read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key:
                return value.strip()
    except OSError:
        pass
    return "unknown"


def describe() -> dict[str, str | int]:
    """Processor, usable cores, memory, kernel and Python of this machine."""
    memory = _field("/proc/meminfo", "MemTotal").split()
    return {
        "processor": _field("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory": f"{int(memory[0]) / 2**20:.0f} GiB" if memory[0].isdigit() else "unknown",
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def sentence(described: dict[str, Any] | None = None) -> str:
    """describe(), of this machine or of another's report, for people."""
    m = described or describe()
    return f"{m['cores']} cores of {m['processor']}, {m['memory']}, Linux {m['kernel']}, Python {m['python']}"
