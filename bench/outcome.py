"""Result of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """The metrics of a benchmark, as an object for programs and as text for people."""

    metrics: Mapping[str, Any]
    text: str
    correct: bool = True


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return cells as aligned lines: the first column to the left, the others to the right."""
    lines = [header, *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(header))]
    return "\n".join(_aligned(line, widths) for line in lines)


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.rjust(width) if place else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(line, widths, strict=True))
    )
    return "  ".join([first, *others]).rstrip()


def shown(value: float | None, form: str) -> str:
    """Return a value as text, a dash if it is None."""
    return "-" if value is None else format(value, form)
