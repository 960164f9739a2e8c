"""Report of a run: a line per attack as it ends, and everything as JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from attack.findings import Findings
from attack.invariants import MIB, Observed

_COLUMNS = (
    ("attack", 12),
    ("seconds", 8),
    ("requests", 9),
    ("frames", 8),
    ("answer", 8),
    ("livez", 8),
    ("ack", 8),
    ("query", 8),
    ("api", 8),
    ("engine", 8),
    ("rows", 7),
    ("result", 6),
)
_UNITS = ("", "s", "", "", "ms", "ms", "ms", "ms", "MiB", "MiB", "acked", "")


class Line(NamedTuple):
    """One attack: what it found, and what was observed meanwhile."""

    name: str
    seconds: float
    findings: Findings
    observed: Observed
    acked: int
    """Rows of the bystanders that were acked during the attack."""
    violations: list[str]

    def text(self) -> str:
        """Return the line of the table, with its figures and violations below."""
        waits = self.observed.waits
        cells = [
            self.name,
            f"{self.seconds:.1f}",
            f"{self.findings.requests:,}",
            f"{self.findings.frames:,}",
            *(_ms(each) for each in (self.findings.longest_s, waits.livez_s, waits.ack_s, waits.answer_s)),
            *(f"{each / MIB:.0f}" for each in (self.observed.api_bytes, self.observed.engine_bytes)),
            f"{self.acked:,}",
            "FAILED" if self.violations else "ok",
        ]
        below = [f"    {name}: {value}" for name, value in self.figures().items()]
        below += [f"    VIOLATED: {what}" for what in self.violations]
        if self.findings.left_out:
            below.append(f"    and {self.findings.left_out} more violations")
        return "\n".join([_aligned(cells), *below])

    def figures(self) -> dict[str, Any]:
        """Return the further figures of the attack: statuses, close codes and its own."""
        counts = {"statuses": self.findings.statuses, "close codes": self.findings.closes}
        found = {name: _sorted(each) for name, each in counts.items() if each} | self.findings.metrics
        return {**found, "slowest": self.findings.slowest} if self.findings.slowest else found

    def json(self) -> dict[str, Any]:
        """Return the line for programs."""
        waits = self.observed.waits
        return {
            "attack": self.name,
            "seconds": round(self.seconds, 1),
            "requests": self.findings.requests,
            "frames": self.findings.frames,
            "longest_answer_ms": self.findings.longest_s * 1e3,
            "longest_livez_ms": waits.livez_s * 1e3,
            "longest_ack_ms": waits.ack_s * 1e3,
            "longest_query_ms": waits.answer_s * 1e3,
            "api_bytes": self.observed.api_bytes,
            "engine_bytes": self.observed.engine_bytes,
            "acked": self.acked,
            "figures": self.figures(),
            "violations": self.violations,
            "violations_left_out": self.findings.left_out,
        }


def header() -> str:
    """Return the first lines of the table."""
    return "\n".join([_aligned([name for name, _ in _COLUMNS]), _aligned(_UNITS)])


def _aligned(cells: Any) -> str:
    padded = (
        cell.rjust(width) if place else cell.ljust(width)
        for place, (cell, (_, width)) in enumerate(zip(cells, _COLUMNS, strict=True))
    )
    return " ".join(padded).rstrip()


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f}"


def _sorted(counts: Counter[int]) -> dict[str, int]:
    return {str(each): counts[each] for each in sorted(counts)}
