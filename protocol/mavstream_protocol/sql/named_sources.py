"""Which streams, tables and queries a statement names, found without planning it."""

from __future__ import annotations

import itertools

from mavstream_protocol.errors import InvalidSql
from mavstream_protocol.sql.source import SqlSource
from mavstream_protocol.sql.tokens import Token, tokenize

_BEFORE_SOURCE = frozenset({"from", "join", "into"})
_WINDOWS = frozenset({"table", "tumble", "hop", "session"})


def named_sources(text: str) -> frozenset[str]:
    """Return the names behind FROM, JOIN and INTO as they are written, those of WITH included.

    It finds all that a statement reads; a text that is no SQL names nothing.
    """
    try:
        tokens = tokenize(SqlSource(text))
    except InvalidSql:
        return frozenset()
    found = set()
    expected = False
    for token, behind in itertools.pairwise(tokens):
        if token.word in _BEFORE_SOURCE:
            expected = True
        elif expected and token.sign != "(" and not _opens_window(token, behind):
            if token.names:
                found.add(token.value)
            expected = False
    return frozenset(found)


def _opens_window(token: Token, behind: Token) -> bool:
    """Return whether a word is `TUMBLE(`, `TABLE(` or `TABLE name`, and no name itself."""
    return token.word in _WINDOWS and (behind.sign == "(" or (token.word == "table" and behind.names))
