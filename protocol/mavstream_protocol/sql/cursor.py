"""A cursor over the tokens of a statement: words, names, expressions, and errors where they do not fit."""

from __future__ import annotations

from dataclasses import dataclass

from mavstream_protocol.errors import ExpressionError, InvalidSql
from mavstream_protocol.expressions.syntax import parse_syntax
from mavstream_protocol.expressions.syntax_tree import Tree
from mavstream_protocol.names import closest, read_name
from mavstream_protocol.sql.source import SqlSource
from mavstream_protocol.sql.tokens import END, HINT, NUMBER, QUOTED, RESERVED, TEXT, WORD, Token, tokenize

# Words inside expressions, after which an operand follows.
_OPERATORS = frozenset(
    {
        *("and", "or", "not", "is", "in", "like", "ilike", "escape", "between", "distinct"),
        *("case", "when", "then", "else"),
    }
)
_NAMED = ("a name", "the name", "a column")
_END_OF_STATEMENT = "the end of the statement"
_CLAUSES = ("FROM", "WHERE", "GROUP BY", "HAVING", "JOIN", "UNION ALL")
_OPERANDS = frozenset({"null", "true", "false", "cast", "try_cast", "end"})


@dataclass(frozen=True, slots=True)
class Name:
    """A name as it is written in a statement."""

    value: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Snippet:
    """An expression: its text, its place in the statement and its syntax tree.

    Places in the tree count from the start of the expression.
    """

    text: str
    start: int
    tree: Tree

    @property
    def end(self) -> int:
        """Where it ends in the statement."""
        return self.start + len(self.text)

    def part(self, tree: Tree) -> Snippet:
        """Return a part of the expression as an expression of its own."""
        text = self.text[tree.start : tree.end]
        return Snippet(text, self.start + tree.start, _moved(tree, -tree.start))


def _moved(tree: Tree, distance: int) -> Tree:
    """Return a tree whose places count from another start."""
    operands = tuple(_moved(operand, distance) for operand in tree.operands)
    return tree._replace(operands=operands, start=tree.start + distance, end=tree.end + distance)


class Cursor:
    """The tokens of a statement, read from left to right."""

    def __init__(self, source: SqlSource, start: int = 0, end: int | None = None) -> None:
        self.source = source
        self._tokens = tokenize(source, start, end)
        self._at = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self._tokens[self._at]

    @property
    def last_end(self) -> int:
        """Where the token before the next one ends."""
        return self._tokens[self._at - 1].end if self._at else 0

    @property
    def at_end(self) -> bool:
        """Whether no token is left."""
        return self.token.kind == END

    def ahead(self, distance: int) -> Token:
        """Return a token behind the next one, or the last one."""
        return self._tokens[min(self._at + distance, len(self._tokens) - 1)]

    def take(self) -> Token:
        """Return the next token and move behind it."""
        token = self.token
        self._at += token.kind != END
        return token

    def at_words(self, *words: str) -> bool:
        """Whether these words follow."""
        return all(self.ahead(number).word == word for number, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Move behind these words if they follow; returns whether they did."""
        found = self.at_words(*words)
        self._at += len(words) if found else 0
        return found

    def accept_sign(self, sign: str) -> bool:
        """Move behind a sign if it follows; returns whether it did."""
        found = self.token.sign == sign
        self._at += found
        return found

    def expect(self, *words: str) -> None:
        """Move behind these words; raises InvalidSql if others follow."""
        for word in words:
            if not self.accept(word):
                raise self.misplaced(word.upper())

    def expect_sign(self, sign: str) -> None:
        """Move behind a sign; raises InvalidSql if something else follows."""
        if not self.accept_sign(sign):
            raise self.misplaced(f"`{sign}`")

    def expect_end(self) -> None:
        """Check that at most a semicolon is left; raises InvalidSql."""
        self.accept_sign(";")
        if not self.at_end:
            raise self.misplaced(_END_OF_STATEMENT)

    def one_of(self, *words: str) -> str:
        """Return the next word, one of the given; raises InvalidSql."""
        if self.token.word not in words:
            raise self.misplaced(*(word.upper() for word in words))
        return self.take().word

    def name(self, what: str) -> Name:
        """Return the name of something; raises InvalidSql if none follows or it is not valid."""
        token = self.token
        if not token.names:
            raise self.misplaced(what)
        self._at += 1
        try:
            read_name(token.value)
        except ValueError as error:
            raise self.source.error("invalid_name", str(error), token.start, token.end) from None
        return Name(token.value, token.start, token.end)

    def text(self, what: str) -> Token:
        """Return a text in single quotes; raises InvalidSql."""
        if self.token.kind == QUOTED:
            raise self.source.error(
                "syntax_error",
                f"expected {what}, got a name in double quotes; use single quotes for text: "
                f"'{self.token.value}'",
                self.token.start,
                self.token.end,
            )
        if self.token.kind != TEXT:
            raise self.misplaced(what)
        return self.take()

    def hint(self) -> Token | None:
        """Return the hint `/*+ ... */` that stands here, if any."""
        return self.take() if self.token.kind == HINT else None

    def expression(self, what: str = "an expression") -> Snippet:
        """Return the expression that begins here; raises InvalidSql."""
        first, end = self.token, self._end_of_expression()
        if end == self._at:
            raise self.misplaced(what)
        start, stop = first.start, self._tokens[end - 1].end
        self._at = end
        text = self.source.text[start:stop]
        try:
            return Snippet(text, start, parse_syntax(text))
        except ExpressionError as error:
            if error.at is not None:
                raise self.source.error_at(error.code, error.detail, start + error.at) from None
            raise self.source.error_within(error.code, error.detail, start, stop) from None

    def misplaced(self, *expected: str) -> InvalidSql:
        """Return the error for the next token."""
        token = self.token
        if token.kind == HINT:
            return self.source.error(
                "syntax_error",
                "a hint does not fit here; write it behind SELECT or UNION ALL",
                token.start,
                token.end,
            )
        wanted = " or ".join(expected) if len(expected) < 3 else f"one of {', '.join(expected)}"
        found = (
            "the end of the text" if token.kind == END else f"`{self.source.text[token.start : token.end]}`"
        )
        detail = f"expected {wanted}, got {found}"
        words = (*expected, *_CLAUSES) if _END_OF_STATEMENT in expected else expected
        close = closest(token.value.upper(), words, 1) if token.kind == WORD else []
        if close and close[0] != token.value.upper():
            detail += f"; did you mean {close[0]}?"
        elif token.word in RESERVED and any(what.startswith(_NAMED) for what in expected):
            detail += f'; a name that is a word of SQL must be quoted: "{token.value}"'
        return self.source.error("syntax_error", detail, token.start, token.end)

    def _end_of_expression(self) -> int:
        """Return the number of the first token that is no part of the expression that begins here."""
        depth = cases = 0
        at = self._at
        before: Token | None = None
        while (token := self._tokens[at]).kind != END:
            if token.word == "within" and self._group_follows(at):
                at += 2
                token = self._tokens[at]
            after_dot = before is not None and before.sign == "."
            if depth == 0 and not after_dot:
                if token.sign in (",", ")", ";") or token.kind == HINT:
                    break
                if token.word in RESERVED and token.word not in _OPERATORS | _OPERANDS:
                    break
                if token.word == "end" and not cases:
                    break
                if before is not None and token.names and self._ends_operand(at - 1):
                    break  # the name of the column
            elif token.word == "select":
                raise self.source.error(
                    "unsupported_syntax",
                    "a query cannot stand inside an expression; write it in FROM or in WITH",
                    token.start,
                    token.end,
                )
            if not after_dot:
                cases += (token.word == "case") - (token.word == "end")
            depth += (token.sign == "(") - (token.sign == ")")
            before = token
            at += 1
        return at

    def _group_follows(self, at: int) -> bool:
        """Whether `GROUP (` follows a token: WITHIN GROUP (ORDER BY x) is part of an expression."""
        group, parenthesis = (self._tokens[min(at + ahead, len(self._tokens) - 1)] for ahead in (1, 2))
        return group.word == "group" and parenthesis.sign == "("

    def _ends_operand(self, at: int) -> bool:
        token = self._tokens[at]
        if token.kind in (TEXT, NUMBER):
            return at == self._at or self._tokens[at - 1].word != "interval"
        if token.kind == WORD:
            return token.word not in _OPERATORS
        return token.kind == QUOTED or token.sign == ")"
