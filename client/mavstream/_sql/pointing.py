"""The line of an error in SQL, with a caret under its column."""

from __future__ import annotations

_WIDTH = 100
"""Characters of the line that are shown."""


def pointed(sql: str, line: int, column: int) -> str:
    """Return a line of a text with a caret under a column, both from 1; a long line only around it."""
    lines = sql.split("\n")
    text = lines[line - 1].rstrip("\r").replace("\t", " ") if line <= len(lines) else ""
    at = column - 1
    start = max(0, at - _WIDTH // 2) if len(text) > _WIDTH else 0
    shown = text[start : start + _WIDTH]
    front, back = "..." if start else "", "..." if start + _WIDTH < len(text) else ""
    head = f"line {line}: {front}"
    return f"{head}{shown}{back}\n{' ' * (len(head) + at - start)}^"
