"""Findings of an attack: what it sent, how it was answered, and what was wrong with that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

MOST_VIOLATIONS = 20
"""Violations that are kept in full; further ones are counted."""


@dataclass(slots=True)
class Findings:
    """Counts of requests and frames, statuses and close codes, and violations of what must hold."""

    requests: int = 0
    frames: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    closes: Counter[int] = field(default_factory=Counter)
    longest_s: float = 0.0
    """The longest time from a request to its answer."""
    slowest: str = ""
    """The request that took that long."""
    violations: list[str] = field(default_factory=list)
    left_out: int = 0
    """Violations beyond the first ones."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Further figures of this attack."""

    def violated(self, what: str) -> None:
        """Record a violation."""
        if len(self.violations) < MOST_VIOLATIONS:
            self.violations.append(what)
        else:
            self.left_out += 1

    def expect(self, holds: object, what: str) -> bool:
        """Record a violation unless something holds; returns whether it does."""
        if not holds:
            self.violated(what)
        return bool(holds)

    def answered(self, what: str, status: int, seconds: float, documented: Collection[int] = ()) -> None:
        """Record the answer to a request; one of 500 and above is a violation unless it is documented."""
        self.requests += 1
        self.statuses[status] += 1
        self.waited(what, seconds)
        if status >= 500 and status not in documented:
            self.violated(f"{what}: status {status}")

    def waited(self, what: str, seconds: float) -> None:
        """Record how long something took."""
        if seconds > self.longest_s:
            self.longest_s, self.slowest = seconds, what

    def closed(self, what: str, code: int, expected: Collection[int]) -> None:
        """Record the close code of a websocket."""
        self.closes[code] += 1
        if code not in expected:
            self.violated(f"{what}: the websocket was closed with {code}")

    def add(self, other: Findings) -> None:
        """Add the findings of a part of the attack."""
        self.requests += other.requests
        self.frames += other.frames
        self.statuses += other.statuses
        self.closes += other.closes
        self.waited(other.slowest, other.longest_s)
        for what in other.violations:
            self.violated(what)
        self.left_out += other.left_out
        self.metrics |= other.metrics
