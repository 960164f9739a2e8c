"""The words of an expression: only those that expressions use reach the grammar.

The SQL grammar behind it knows far more than expressions need, and parts of it take exponential time or
recurse without bound on nested input. So every token is checked first: what is not part of an expression
is named here, words that can only be columns become quoted identifiers, and nesting is limited.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from mavstream_protocol.errors import ExpressionError
from mavstream_protocol.expressions.functions import CALLABLE, unknown_function
from mavstream_protocol.schema import FieldType

MAX_DEPTH = 64

TYPE_NAMES = {
    **dict.fromkeys(("int", "bigint", "integer"), FieldType.INT),
    **dict.fromkeys(("float", "double"), FieldType.FLOAT),
    **dict.fromkeys(("bool", "boolean"), FieldType.BOOL),
    **dict.fromkeys(("string", "varchar", "text"), FieldType.STRING),
    "timestamp": FieldType.TIMESTAMP,
}
"""Type names that may follow AS in a CAST."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KEYWORDS = _words(
    "and or not is in like escape between case when then else end null true false as distinct cast try_cast"
)
# SQL keywords that expressions do not support; errors say so, unless a column has the name.
_LEFT_OUT = _words(
    "select from where over filter interval exists with union limit order group having collate ilike "
    "similar glob regexp at any all some array struct map date time extract lambda current_timestamp "
    "current_date unnest within"
)
_SIGNS = frozenset(
    {
        TokenType.L_PAREN,
        TokenType.R_PAREN,
        TokenType.COMMA,
        TokenType.DOT,
        TokenType.EQ,
        TokenType.NEQ,
        TokenType.LT,
        TokenType.LTE,
        TokenType.GT,
        TokenType.GTE,
        TokenType.PLUS,
        TokenType.DASH,
        TokenType.STAR,
        TokenType.SLASH,
        TokenType.DIV,
        TokenType.MOD,
        TokenType.DPIPE,
        TokenType.DCOLON,
        TokenType.NUMBER,
        TokenType.STRING,
        TokenType.IDENTIFIER,
    }
)
_PREFIXES = frozenset({TokenType.NOT, TokenType.DASH, TokenType.PLUS})


def too_deep() -> ExpressionError:
    """Build the error for an expression that is nested beyond `MAX_DEPTH`."""
    return ExpressionError(
        "expression_too_deep",
        f"the expression is nested more than {MAX_DEPTH} levels deep; compute parts of it in a project below",
    )


def tokenize(text: str, names: Collection[str]) -> list[Token]:
    """Return the tokens of an expression, checked; `names` are the columns there are, lower case."""
    try:
        tokens = DuckDB.Tokenizer().tokenize(text)
    except TokenError as error:
        raise ExpressionError(
            "syntax_error", f"`{text}` has a text or quoted name that does not end; close the quote"
        ) from error
    _check_nesting(tokens)
    checked: list[Token] = []
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else None
        after = tokens[index + 1] if index + 1 < len(tokens) else None
        checked.append(_checked(token, before, after, names))
    return checked


def _checked(token: Token, before: Token | None, after: Token | None, names: Collection[str]) -> Token:
    """Return the token to pass to the grammar; raises ExpressionError for unsupported ones."""
    called = after is not None and after.token_type is TokenType.L_PAREN
    if token.token_type in _SIGNS:
        if token.token_type is TokenType.IDENTIFIER and called:
            raise unknown_function(token.text)
        return token
    if not (token.text[:1].isalpha() or token.text[:1] == "_"):
        raise _unsupported(token.text)
    word = token.text.lower()
    typed = before is not None and (before.token_type is TokenType.DCOLON or before.text.lower() == "as")
    if typed and word not in TYPE_NAMES:
        known = ", ".join(sorted(TYPE_NAMES))
        raise ExpressionError("unsupported_syntax", f"there is no type `{token.text}`; known are {known}")
    if typed and not called:
        return token
    dotted = TokenType.DOT in (before and before.token_type, after and after.token_type)
    if word in _KEYWORDS and not dotted:
        return token
    if called:
        if word not in CALLABLE:
            raise _unsupported(token.text) if word in _LEFT_OUT else unknown_function(token.text)
        return _retyped(token, TokenType.VAR)
    if word == "timestamp" and after is not None and after.token_type is TokenType.STRING:
        return token
    if word in _LEFT_OUT and not dotted and word not in names:
        raise _unsupported(token.text)
    return token if token.token_type is TokenType.VAR else _retyped(token, TokenType.IDENTIFIER)


def _retyped(token: Token, token_type: TokenType) -> Token:
    return Token(token_type, token.text, token.line, token.col, token.start, token.end, token.comments)


def _unsupported(text: str) -> ExpressionError:
    return ExpressionError(
        "unsupported_syntax",
        f"`{text}` is not part of expressions; use operators, CASE, CAST and the listed functions, "
        "and quote columns of that name",
    )


def _check_nesting(tokens: list[Token]) -> None:
    """Refuse parentheses, CASEs and runs of prefix operators nested beyond the limit."""
    opened: list[int] = []
    depth = run = 0
    for token in tokens:
        if token.token_type in (TokenType.L_PAREN, TokenType.CASE):
            opened.append(run + 1)
            depth += run + 1
            run = 0
        elif token.token_type in _PREFIXES:
            run += 1
        else:
            run = 0
            if token.token_type in (TokenType.R_PAREN, TokenType.END) and opened:
                depth -= opened.pop()
        if depth + run > MAX_DEPTH:
            raise too_deep()
