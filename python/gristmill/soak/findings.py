"""What each part of the campaign hands in: faults, measures, violations."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class PartResult:
    """One part: a primitive of core, or whole training runs."""

    name: str
    # By role, then by how: {"producer": {"killed at random": 12, …}, …}
    faults: dict[str, dict[str, int]] = field(default_factory=dict)
    measures: dict[str, int] = field(default_factory=dict)
    findings: dict[str, int] = field(default_factory=dict)  # by kind; above zero is a violation
    stalls_ms: dict[str, float] = field(default_factory=dict)  # count, p50, p99, p999, max
    net_stalls_ms: dict[str, float] = field(default_factory=dict)  # without the wait for a core
    late_ms: dict[str, float] = field(default_factory=dict)
    noise_ms: dict[str, float] = field(default_factory=dict)  # how late a mere sleeper woke up
    points: dict[str, dict[str, int]] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)  # of violations, with how to play them again

    def count(self, role: str, how: str, by: int = 1) -> None:
        hows = self.faults.setdefault(role, {})
        hows[how] = hows.get(how, 0) + by

    def find(self, kind: str, text: str) -> None:
        self.findings[kind] = self.findings.get(kind, 0) + 1
        self.texts.append(text)

    def _sum(self, word: str) -> int:
        return sum(n for hows in self.faults.values() for how, n in hows.items() if how.startswith(word))

    @property
    def kills(self) -> int:
        return self._sum("killed")

    @property
    def stops(self) -> int:
        return self._sum("stopped")

    @property
    def violations(self) -> int:
        return sum(self.findings.values())

    def to_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "kills": self.kills,
            "stops": self.stops,
            "violations": self.violations,
        }
