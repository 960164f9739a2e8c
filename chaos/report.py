"""Report of a run: what was done to the server, and how the answers differ from those of DuckDB."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

_MOST = 30


@dataclass(slots=True)
class ChaosReport:
    """Counts of a run; every violation makes it fail."""

    seed: int
    rounds: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    """By kind; for failpoints those that have fired."""
    unfired: Counter[str] = field(default_factory=Counter)
    """Failpoints that were armed and not reached."""
    changes: Counter[str] = field(default_factory=Counter)
    refused_changes: int = 0
    """Changes that the server did not answer because it was gone, or that it refused."""
    acked: int = 0
    """Rows of each stream that were acked."""
    rows_lost: int = 0
    rows_doubled: int = 0
    answers: int = 0
    answers_lost: int = 0
    answers_repeated: int = 0
    answers_altered: int = 0
    answers_foreign: int = 0
    epochs_changed: int = 0
    gaps: int = 0
    longest_recovery_s: float = 0.0
    violations: list[str] = field(default_factory=list)
    left_out: int = 0

    def violated(self, what: str) -> None:
        """Record a violation; those beyond the first ones are counted."""
        if len(self.violations) < _MOST:
            self.violations.append(what)
        else:
            self.left_out += 1

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
        return ", ".join(f"{count} {name}" for name, count in sorted(value.items())) or "none"
    return f"{value:.2f}" if isinstance(value, float) else f"{value:,}"
