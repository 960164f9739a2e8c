"""Tokens of an expression: names, calls, keywords, signs and constants, each with its place in the text."""

from __future__ import annotations

import re
from typing import NamedTuple

from mavstream_protocol.errors import ExpressionError
from mavstream_protocol.expressions.functions import CALLABLE, unknown_function
from mavstream_protocol.schema import FieldType

# Kinds of tokens. The kind of a keyword or a sign is its text: `and`, `<=`.
NAME, CALL, TYPE, NUMBER, TEXT, END = "name", "call", "type", "number", "text", "end of text"
# Words that are names elsewhere: INTERVAL before a quantity, EXTRACT before a parenthesis.
INTERVAL, EXTRACT = "interval", "extract"

TYPE_NAMES = {
    **dict.fromkeys(("int", "bigint", "integer"), FieldType.INT),
    **dict.fromkeys(("float", "double"), FieldType.FLOAT),
    **dict.fromkeys(("bool", "boolean"), FieldType.BOOL),
    **dict.fromkeys(("string", "varchar", "text"), FieldType.STRING),
    "timestamp": FieldType.TIMESTAMP,
}
"""Type names that may follow AS in a CAST, or `::`."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


KEYWORDS = _words(
    "and or not is in like ilike escape between case when then else end null true false as distinct "
    "cast try_cast"
)
LEFT_OUT = _words(
    "select from where over filter exists with union limit order group having collate "
    "similar glob regexp at any all some array struct map date time lambda current_timestamp "
    "current_date unnest within"
)
"""SQL keywords that expressions do not support; a column may still have such a name."""

_PHRASES = frozenset({("within", "group"), ("order", "by")})
"""Words that may precede an opening parenthesis without being called."""

_TOKEN = re.compile(
    r"""
      (?: \s+ | --[^\n]* | /\*.*?(?:\*/|\Z) )
    | (?P<word> [^\W\d]\w* )
    | (?P<number> (?: \d+(?:\.\d*)? | \.\d+ ) (?:[eE][+-]?\d+)? )
    | (?P<text> '[^']*+(?:''[^']*+)*+' )
    | (?P<quoted> "[^"]*+(?:""[^"]*+)*+" )
    | (?P<other> ->>? | => | \*\* | := )
    | (?P<sign> :: | <> | != | <= | >= | == | \|\| | // | [-+*/%=<>(),.] )
    | (?P<rest> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_SAME_SIGNS = {"==": "=", "!=": "<>"}


class Token(NamedTuple):
    """A token: its kind, its value, and where it stands in the text."""

    kind: str
    value: str
    """A name or text without its quotes, a called function in lower case, otherwise as it is written."""
    start: int
    end: int


def tokenize(text: str) -> list[Token]:
    """Return the tokens of an expression with one of kind `END` behind them; raises ExpressionError."""
    tokens: list[Token] = []
    before = ""  # the kind of the token before
    for match in _TOKEN.finditer(text):
        group = match.lastgroup
        if group is None:
            continue
        value, (start, end) = match.group(), match.span()
        if group == "word":
            kind = _kind_of_word(value, before)
        elif group == "sign":
            kind = _SAME_SIGNS.get(value, value)
            if kind == "(" and before in (NAME, TYPE):
                if tuple(token.value.lower() for token in tokens[-2:]) not in _PHRASES:
                    tokens[-1] = _called(tokens[-1], text)
            elif kind == "." and before in KEYWORDS:
                tokens[-1] = tokens[-1]._replace(kind=NAME)
        elif group == "number":
            kind = NUMBER
            if before == NAME and tokens[-1].value.lower() == INTERVAL:
                tokens[-1] = tokens[-1]._replace(kind=INTERVAL)
        elif group == "text":
            kind, value = TEXT, value[1:-1].replace("''", "'")
            if before == NAME and (word := tokens[-1].value.lower()) in ("timestamp", INTERVAL):
                tokens[-1] = tokens[-1]._replace(kind=INTERVAL if word == INTERVAL else TYPE)
        elif group == "quoted":
            kind, value = NAME, value[1:-1].replace('""', '"')
        elif value in "'\"":
            raise ExpressionError(
                "syntax_error", f"`{text}` has a text or quoted name that does not end; close the quote"
            )
        else:
            raise unsupported_word(value)
        tokens.append(Token(kind, value, start, end))
        before = kind
    tokens.append(Token(END, "", len(text), len(text)))
    return tokens


def unsupported_word(text: str) -> ExpressionError:
    """Build the error for a word or sign of SQL that expressions do not have."""
    return ExpressionError(
        "unsupported_syntax",
        f"`{text}` is not part of expressions; use operators, CASE, CAST and the listed functions, "
        "and quote columns of that name",
    )


def _kind_of_word(text: str, before: str) -> str:
    word = text.lower()
    if before in ("::", "as"):
        if word not in TYPE_NAMES:
            known = ", ".join(sorted(TYPE_NAMES))
            raise ExpressionError("unsupported_syntax", f"there is no type `{text}`; known are {known}")
        return TYPE
    return word if word in KEYWORDS and before != "." else NAME


def _called(token: Token, text: str) -> Token:
    """Return the token of a function's name; raises ExpressionError if there is none of that name."""
    word = token.value.lower()
    quoted = text[token.start] == '"'
    if word == EXTRACT and not quoted:
        return Token(EXTRACT, word, token.start, token.end)
    if word in CALLABLE and not quoted:
        return Token(CALL, word, token.start, token.end)
    raise unsupported_word(token.value) if word in LEFT_OUT and not quoted else unknown_function(token.value)
