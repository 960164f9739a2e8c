"""Fenced code blocks of the documents, for tests that run them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def as_program(page: Path) -> str:
    """Return the Python blocks as one program with the line numbers of the page."""
    lines, inside = [], False
    for line in page.read_text().splitlines():
        inside = line == "```python" or (inside and line != "```")
        lines.append(line if inside and line != "```python" else "")
    return "\n".join(lines)
