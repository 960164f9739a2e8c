"""Pieces of SQL text: names, expressions, windows and hints."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mavstream_protocol.expressions.intervals import format_interval
from mavstream_protocol.expressions.syntax import parse_syntax
from mavstream_protocol.expressions.syntax_tree import Tree
from mavstream_protocol.expressions.tokens import KEYWORDS, tokenize
from mavstream_protocol.instants import format_instant
from mavstream_protocol.plans.hints import Hints
from mavstream_protocol.plans.windows import AggregateWindow, RowWindow, SessionWindow, TimeWindow
from mavstream_protocol.sql.cursor import Snippet
from mavstream_protocol.sql.planner.relations import spliced
from mavstream_protocol.sql.tokens import RESERVED
from mavstream_protocol.sql.windows import WINDOW_FUNCTIONS

_QUOTED = RESERVED | KEYWORDS | set(WINDOW_FUNCTIONS) | {"table", "cumulate", "descriptor", "partition"}
_PLAIN = re.compile(r"\s*")


def name_text(name: str) -> str:
    """Return a name, in quotes if it is a word of SQL."""
    return f'"{name}"' if name.lower() in _QUOTED else name


def expression_text(text: str) -> str:
    """Return an expression of a plan as it can stand in a query: without comments, reserved names quoted."""
    text = _without_comments(text)
    return spliced(Snippet(text, 0, parse_syntax(text)), lambda tree: _quoted_column(tree, text))


def item_text(name: str, text: str) -> str:
    """Return an item of the list of SELECT."""
    written = expression_text(text)
    return written if written == name else f"{written} AS {name_text(name)}"


def window_text(relation: str, time: str | None, window: AggregateWindow) -> str:
    """Return TUMBLE(...), HOP(...) or SESSION(...) around a relation."""
    if isinstance(window, SessionWindow):
        column = [] if time is None else [name_text(time)]
        return f"SESSION({', '.join([relation, *column, format_interval(window.gap)])})"
    extents = [window.size] if window.hop is None else [window.hop, window.size]
    by_time = isinstance(window, TimeWindow)
    shown = [format_interval(extent) if by_time else f"ROWS {extent}" for extent in extents]
    column = [name_text(time)] if time is not None and by_time else []
    function = "TUMBLE" if window.hop is None else "HOP"
    return f"{function}({', '.join([relation, *column, *shown])})"


def window_hints(window: AggregateWindow) -> list[str]:
    """Return the hints for what window functions have no arguments for."""
    hints = []
    for word, value in (("BEGIN", window.begin), ("UNTIL", window.until)):
        if value is not None:
            shown = str(value) if isinstance(window, RowWindow) else f"'{format_instant(value)}'"
            hints.append(f"{word}({shown})")
    return hints + ["PARTIAL"] * window.partial


def statistics_hints(operator: str, hints: Hints | None) -> list[str]:
    """Return the hint with the expected statistics of an operator."""
    if hints is None:
        return []
    given = hints.model_dump(mode="json", exclude_none=True)
    shown = (f"{key} = {_constant(value)}" for key, value in given.items())
    return [f"HINT({', '.join([operator, *shown])})"]


def split_hint(outputs: Mapping[str, str]) -> str:
    """Return the hint with the conditions of a split."""
    listed = (f"{expression_text(text)} AS {name_text(name)}" for name, text in outputs.items())
    return f"SPLIT({', '.join(listed)})"


def _constant(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


def _quoted_column(tree: Tree, text: str) -> str | None:
    if tree.kind != "column" or text[tree.start] == '"' or "." in tree.value:
        return None
    return f'"{tree.value}"' if tree.value.lower() in RESERVED else None


def _without_comments(text: str) -> str:
    """Return an expression with a space instead of each comment, since a hint cannot contain one."""
    if "--" not in text and "/*" not in text:
        return text
    found, end = "", 0
    for token in tokenize(text):
        gap = text[end : token.start]
        found += gap if _PLAIN.fullmatch(gap) else " "
        found += text[token.start : token.end]
        end = token.end
    return found.strip()
