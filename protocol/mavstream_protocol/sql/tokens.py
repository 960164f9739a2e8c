"""Tokens of an SQL statement, each with its place in the text."""

from __future__ import annotations

import re
from typing import NamedTuple

from mavstream_protocol.sql.source import SqlSource

# Kinds of tokens.
WORD, QUOTED, NUMBER, TEXT, SIGN, HINT, END = "word", "quoted", "number", "text", "sign", "hint", "end"

RESERVED = frozenset(
    {
        *("select", "from", "where", "group", "by", "having", "distinct", "all", "as", "with", "window"),
        *("union", "except", "intersect", "order", "limit", "offset", "into", "values"),
        *("join", "inner", "left", "right", "full", "cross", "natural", "anti", "semi", "on", "using"),
        *("and", "or", "not", "is", "in", "like", "ilike", "escape", "between"),
        *("case", "when", "then", "else", "end", "null", "true", "false", "cast", "try_cast"),
    }
)
"""Words that name no column, stream or query unless they are quoted."""

_TOKEN = re.compile(
    r"""
      (?: \s+ | --[^\n]* )
    | (?P<hint> /\*\+.*?\*/ )
    | (?: /\*.*?\*/ )
    | (?P<word> [^\W\d]\w* )
    | (?P<number> (?: \d+(?:\.\d*)? | \.\d+ ) (?:[eE][+-]?\d+)? )
    | (?P<text> '[^']*+(?:''[^']*+)*+' )
    | (?P<quoted> "[^"]*+(?:""[^"]*+)*+" )
    | (?P<rest> /\* )
    | (?P<sign> :: | <> | != | <= | >= | == | \|\| | // | [-+*/%=<>(),.;] )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """A token: its kind, its value, and where it stands in the text."""

    kind: str
    value: str
    """A quoted name or text without its quotes, the inside of a hint, otherwise as it is written."""
    start: int
    end: int

    @property
    def word(self) -> str:
        """The word in lower case; empty for other tokens, quoted names included."""
        return self.value.lower() if self.kind == WORD else ""

    @property
    def sign(self) -> str:
        """The sign; empty for other tokens."""
        return self.value if self.kind == SIGN else ""

    @property
    def names(self) -> bool:
        """Whether it can be the name of something."""
        return self.kind == QUOTED or (self.kind == WORD and self.value.lower() not in RESERVED)


def tokenize(source: SqlSource, start: int = 0, end: int | None = None) -> list[Token]:
    """Return the tokens of a text, or of a piece of it, and one of kind `END`; raises InvalidSql."""
    end = len(source.text) if end is None else end
    tokens: list[Token] = []
    for match in _TOKEN.finditer(source.text, start, end):
        kind, value = match.lastgroup, match.group()
        if kind is None:
            continue
        if kind in ("rest", "other"):
            raise _unreadable(source, match.start())
        if kind == TEXT:
            value = value[1:-1].replace("''", "'")
        elif kind == QUOTED:
            value = value[1:-1].replace('""', '"')
        elif kind == HINT:
            value = value[3:-2]
        tokens.append(Token(kind, value, *match.span()))
    tokens.append(Token(END, "", end, end))
    return tokens


def _unreadable(source: SqlSource, at: int) -> Exception:
    found = source.text[at]
    if found in "'\"":
        kind = "text" if found == "'" else "quoted name"
        detail = f"this {kind} does not end; close it with {found}"
    elif found == "`":
        detail = 'names are quoted with double quotes, as in "end"; replace the back-quotes'
    elif source.text.startswith("/*", at):
        detail = "this comment does not end; close it with */"
    else:
        detail = f"`{found}` is no part of SQL; leave it out"
    return source.error("syntax_error", detail, at, len(source.text) if found in "'\"" else at + 1)
