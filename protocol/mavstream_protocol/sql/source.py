"""The text of an SQL statement, and errors that point into it."""

from __future__ import annotations

import re

from mavstream_protocol.errors import InvalidSql
from mavstream_protocol.expressions.syntax_tree import shortened

MAX_LENGTH = 1 << 20
"""The longest statement, in characters; a plan's JSON text has the same limit."""
MAX_DEPTH = 32
"""The most levels of nested queries; expressions have their own limit."""
_WORD = re.compile(r"\w+|\S")
_QUOTED = re.compile(r"`([^`]+)`")


class SqlSource:
    """The text of a statement; builds errors with line and column."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > MAX_LENGTH:
            raise self.error(
                "statement_too_long",
                f"the statement has {len(text):,} characters, at most {MAX_LENGTH:,} are allowed; "
                "split it into several queries",
                0,
                0,
            )

    def error(self, reason: str, detail: str, start: int, end: int) -> InvalidSql:
        """Return the error for a piece of the text."""
        start = min(start, len(self.text))
        line = self.text.count("\n", 0, start) + 1
        column = start - (self.text.rfind("\n", 0, start) + 1) + 1
        return InvalidSql(reason, detail, line, column, shortened(self.text[start:end]))

    def error_within(self, reason: str, detail: str, start: int, end: int) -> InvalidSql:
        """Return the error for the part of a piece that the message quotes, or else for the whole piece."""
        for quoted in _QUOTED.findall(detail):
            found = re.compile(rf"(?<!\w){re.escape(quoted)}(?!\w)").search(self.text, start, end)
            if found is not None:
                return self.error(reason, detail, *found.span())
        return self.error(reason, detail, start, end)

    def error_at(self, reason: str, detail: str, start: int) -> InvalidSql:
        """Return the error for the word or sign at a place."""
        word = _WORD.match(self.text, start)
        return self.error(reason, detail, start, word.end() if word else start)

    def too_deep(self, start: int, end: int) -> InvalidSql:
        """Return the error for queries that are nested beyond `MAX_DEPTH`."""
        return self.error(
            "statement_too_deep",
            f"queries are nested more than {MAX_DEPTH} levels deep; name inner ones with WITH",
            start,
            end,
        )
