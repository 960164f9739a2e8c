"""Report of a run: what was done to the server, and how the answers differ from those of DuckDB."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

_MOST = 30


@dataclass(slots=True)
class ChaosReport:
    """Counts of a run; every violation makes it fail."""

    seed: int
    rounds: int = 0
    sigkills: Counter[str] = field(default_factory=Counter)
    """SIGKILLs by process: `api`, `engine`, and `writer`, which writes checkpoints."""
    faults: Counter[str] = field(default_factory=Counter)
    """Rounds by what they did to the server."""
    failpoints: Counter[str] = field(default_factory=Counter)
    """Failpoints that have acted."""
    unreached: Counter[str] = field(default_factory=Counter)
    """Failpoints that were armed and not reached."""
    damaged: int = 0
    """Checkpoints that were damaged while the server was down."""
    changes: Counter[str] = field(default_factory=Counter)
    """What was changed, by the run or by the optimizer (`plan`, `shedding`)."""
    interrupted_changes: int = 0
    """Changes that the server could not answer, because it was gone, and that were repeated."""
    acked: Counter[str] = field(default_factory=Counter)
    """Rows that were acked, by stream."""
    rows_lost: int = 0
    rows_doubled: int = 0
    rows_shed: int = 0
    """Rows that a query has shed, which are neither lost nor answered."""
    answers: int = 0
    answers_lost: int = 0
    answers_repeated: int = 0
    answers_altered: int = 0
    answers_foreign: int = 0
    epochs_changed: int = 0
    gaps: int = 0
    longest_recovery_s: float = 0.0
    seconds: Counter[str] = field(default_factory=Counter)
    """What the time of the run was spent on."""
    violations: list[str] = field(default_factory=list)
    left_out: int = 0
    """Violations that are not listed."""

    def violated(self, what: str) -> None:
        """Record a violation; those beyond the first ones are counted."""
        if len(self.violations) < _MOST:
            self.violations.append(what)
        else:
            self.left_out += 1

    def recovered(self, seconds: float) -> None:
        """Record how long the server took from a fault until it was ready again."""
        self.longest_recovery_s = max(self.longest_recovery_s, seconds)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Count the time of a block."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.seconds[what] += round(time.monotonic() - begin, 3)

    @property
    def failed(self) -> bool:
        """Whether anything was violated."""
        return bool(self.violations)

    def json(self) -> dict[str, Any]:
        """Return the report for programs."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: dict(each) if isinstance(each, Counter) else each for name, each in found.items()}

    def text(self) -> str:
        """Return the report for people."""
        shown = {name: value for name, value in self.json().items() if name != "violations"}
        lines = [f"{name.replace('_', ' ')}: {_text(value)}" for name, value in shown.items()]
        lines += [f"VIOLATED: {what}" for what in self.violations]
        return "\n".join([*lines, "violations were found" if self.failed else "exactly once"])


def _text(value: Any) -> str:
    if isinstance(value, dict):
        parts = ", ".join(f"{_text(count)} {name}" for name, count in sorted(value.items()))
        return f"{_text(sum(value.values()))} ({parts})" if parts else "none"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
