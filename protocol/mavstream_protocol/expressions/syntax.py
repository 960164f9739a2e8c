"""Syntax of expressions: text to a tree, within limits of length and depth, in linear time.

Operators by precedence, from the lowest: OR; AND; `=`, `<>` and IS; the other comparisons; BETWEEN, IN,
LIKE and ILIKE; `||`; `+` and `-`; `*`, `/`, `//` and `%`; signs and NOT (which takes a comparison); `::`.
"""

from __future__ import annotations

from functools import lru_cache

from mavstream_protocol.errors import ExpressionError
from mavstream_protocol.expressions.functions import TIME_PARTS, WITHIN_GROUP
from mavstream_protocol.expressions.intervals import UNITS, parse_interval
from mavstream_protocol.expressions.syntax_tree import MAX_DEPTH, Tree, shortened, too_deep
from mavstream_protocol.expressions.tokens import (
    CALL,
    END,
    EXTRACT,
    INTERVAL,
    LEFT_OUT,
    NAME,
    NUMBER,
    TEXT,
    TYPE,
    Token,
    tokenize,
    unsupported_word,
)

MAX_LENGTH = 4096

_SHORT = 256  # characters
_KNOWN = 512
"""Trees that are kept; each takes up to 30 KB."""

_OR, _AND, _EQUALITY, _COMPARISON, _RANGE, _CONCAT, _SUM, _PRODUCT = range(1, 9)
_LEVELS = {
    "or": _OR,
    "and": _AND,
    **dict.fromkeys(("=", "<>", "is"), _EQUALITY),
    **dict.fromkeys(("<", "<=", ">", ">="), _COMPARISON),
    **dict.fromkeys(("between", "in", "like", "ilike", "not"), _RANGE),
    "||": _CONCAT,
    **dict.fromkeys(("+", "-"), _SUM),
    **dict.fromkeys(("*", "/", "//", "%"), _PRODUCT),
}
"""Precedence of the tokens that continue an expression; the higher, the tighter they bind."""


def parse_syntax(text: str) -> Tree:
    """Return the syntax tree of one expression, at most `MAX_DEPTH` deep; raises ExpressionError.

    Short ones that were parsed lately are known: a plan made from SQL has each of its expressions in several
    nodes and phases.
    """
    return _parse_short(text) if len(text) <= _SHORT else _parse(text)


def _parse(text: str) -> Tree:
    if len(text) > MAX_LENGTH:
        raise ExpressionError(
            "expression_too_long",
            f"the expression has {len(text)} characters, at most {MAX_LENGTH} are allowed; "
            "compute parts of it in a project below",
        )
    tokens = tokenize(text)
    if len(tokens) == 1:
        raise ExpressionError("syntax_error", "the expression is empty; write one such as `temperature > 30`")
    return _Parser(text, tokens).parse()


_parse_short = lru_cache(_KNOWN)(_parse)


class _Parser:
    """A parser by precedence climbing; it recurses for nesting alone, which is limited."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._kinds = [token.kind for token in tokens]
        self._at = 0
        self._nested = 0

    def parse(self) -> Tree:
        tree = self._operation(_OR)
        if self._kinds[self._at] != END:
            raise self._misplaced()
        return tree

    def _operation(self, least: int) -> Tree:
        """Read operands and the operators between them that bind at least that tightly."""
        start = self._tokens[self._at].start
        left = self._operand()
        while (level := _LEVELS.get(kind := self._kinds[self._at], 0)) >= least:
            if level == _RANGE or kind == "is":
                left = self._range(left, start)
                continue
            operands = [left]
            while self._accept(kind):
                operands.append(self._operation(level + 1))
                if level > _AND:  # only AND and OR take more than two
                    break
            left = self._tree(kind, tuple(operands), start)
        return left

    def _operand(self) -> Tree:
        kind, start = self._kinds[self._at], self._tokens[self._at].start
        if kind == NAME:
            tree = self._column()
        elif kind in ("+", "-", "not"):
            return self._prefixed(kind)
        else:
            tree = self._primary(kind)
        while self._accept("::"):
            tree = self._tree("cast", (tree,), start, self._expect(TYPE).value)
        return tree

    def _prefixed(self, kind: str) -> Tree:
        start = self._take().start
        number = kind == "-" and self._kinds[self._at] == NUMBER
        self._enter()
        operand = self._operation(_EQUALITY) if kind == "not" else self._operand()
        self._nested -= 1
        if kind == "+":
            return operand
        if number and operand.kind == "number":
            return Tree("number", f"-{operand.value}", (), 1, 1, start, operand.end)
        return self._tree("negate" if kind == "-" else "not", (operand,), start)

    def _column(self) -> Tree:
        first = last = self._take()
        name = first.value
        while self._accept("."):
            if self._kinds[self._at] == "*":
                last = self._take()
                return Tree("star", "", (), 1, 1, first.start, last.end)
            last = self._expect(NAME)
            name += f".{last.value}"
        return Tree("column", name, (), 1, 1, first.start, last.end)

    def _primary(self, kind: str) -> Tree:
        token = self._tokens[self._at]
        if kind in (NUMBER, TEXT, "null", "true", "false"):
            self._at += 1
            return Tree(kind, token.value, (), 1, 1, token.start, token.end)
        if kind == CALL:
            return self._call()
        if kind in ("cast", "try_cast"):
            return self._cast(kind)
        if kind == "case":
            return self._case()
        if kind == INTERVAL:
            return self._interval()
        if kind == EXTRACT:
            return self._extract()
        if kind == "(":
            return self._parenthesized()
        if kind == TYPE:  # TIMESTAMP '2026-01-31 12:00:00'
            self._at += 1
            text = self._expect(TEXT)
            operand = Tree(TEXT, text.value, (), 1, 1, text.start, text.end)
            return self._tree("cast", (operand,), token.start, token.value)
        if kind == "*":
            self._at += 1
            return Tree("star", "", (), 1, 1, token.start, token.end)
        raise self._misplaced()

    def _parenthesized(self) -> Tree:
        start = self._take().start
        self._enter()
        tree = self._operation(_OR)
        if self._kinds[self._at] == ",":
            raise unsupported_word(shortened(self._text[start:]))
        self._expect(")")
        self._nested -= 1
        return tree

    def _call(self) -> Tree:
        name = self._take()
        if name.value == WITHIN_GROUP:
            return self._within_group(name)
        return self._tree("call", self._list(), name.start, name.value)

    def _within_group(self, name: Token) -> Tree:
        """Read PERCENTILE_CONT(0.95) WITHIN GROUP (ORDER BY x), another way to write quantile(x, 0.95)."""
        operands = self._list()
        for words in (("within", "group", "("), ("order", "by")):
            following = [token.value.lower() for token in self._tokens[self._at : self._at + len(words)]]
            if following != [*words]:
                raise _needs_order(name)
            self._at += len(words)
        self._enter()
        operands = (self._operation(_OR), *operands)
        if not self._accept(")"):
            raise _needs_order(name)
        self._nested -= 1
        return self._tree("call", operands, name.start, "quantile")

    def _list(self) -> tuple[Tree, ...]:
        """Read expressions in parentheses; after DISTINCT they are the operands of one tree."""
        start = self._expect("(").start
        self._enter()
        distinct = self._accept("distinct")
        items = []
        if distinct or self._kinds[self._at] != ")":
            items.append(self._operation(_OR))
            while self._accept(","):
                items.append(self._operation(_OR))
        self._expect(")")
        self._nested -= 1
        return (self._tree("distinct", tuple(items), start),) if distinct else tuple(items)

    def _cast(self, kind: str) -> Tree:
        start = self._take().start
        self._expect("(")
        self._enter()
        operand = self._operation(_OR)
        self._expect("as")
        type_name = self._expect(TYPE).value
        self._expect(")")
        self._nested -= 1
        return self._tree(kind, (operand,), start, type_name)

    def _case(self) -> Tree:
        start = self._take().start
        self._enter()
        searched = self._kinds[self._at] == "when"
        parts = [] if searched else [self._operation(_OR)]
        self._expect("when")
        while True:
            parts.append(self._operation(_OR))
            self._expect("then")
            parts.append(self._operation(_OR))
            if not self._accept("when"):
                break
        # Without ELSE the last operand is NULL.
        at = self._tokens[self._at].start
        parts.append(self._operation(_OR) if self._accept("else") else Tree("null", "", (), 1, 1, at, at))
        self._expect("end")
        self._nested -= 1
        return self._tree("case" if searched else "switch", tuple(parts), start)

    def _interval(self) -> Tree:
        """Read INTERVAL '1' SECOND, INTERVAL 1 SECOND or INTERVAL '1 second'."""
        start = self._take().start
        amount = self._take()
        unit = self._tokens[self._at]
        named = unit.kind == NAME and unit.value.lower().removesuffix("s") in (*UNITS, "month", "year")
        self._at += named
        try:
            microseconds = parse_interval(amount.value, unit.value if named else "")
        except ValueError as error:
            raise ExpressionError("invalid_literal", str(error), start) from None
        return self._tree("interval", (), start, str(microseconds))

    def _extract(self) -> Tree:
        """Read EXTRACT(hour FROM x), another way to write hour(x)."""
        start = self._take().start
        self._expect("(")
        self._enter()
        part = self._expect(TEXT if self._kinds[self._at] == TEXT else NAME)
        function = TIME_PARTS.get(part.value.lower())
        if function is None:
            raise ExpressionError(
                "unsupported_syntax",
                f"EXTRACT has no part `{part.value}`; known are {', '.join(TIME_PARTS)}",
                part.start,
            )
        if self._tokens[self._at].value.lower() != "from":
            raise self._misplaced()
        self._at += 1
        operand = self._operation(_OR)
        self._expect(")")
        self._nested -= 1
        return self._tree("call", (operand,), start, function)

    def _range(self, left: Tree, start: int) -> Tree:
        """Read what follows the left operand of BETWEEN, IN, LIKE, ILIKE or IS, with or without NOT."""
        negated = self._accept("not")
        if self._accept("between"):
            low = self._operation(_CONCAT)
            self._expect("and")
            tree = self._tree("between", (left, low, self._operation(_CONCAT)), start)
        elif self._accept("in"):
            if self._kinds[self._at] != "(":
                raise _needs_list(self._text[start : self._tokens[self._at].end])
            tree = self._tree("in", (left, *self._list()), start)
            if len(tree.operands) == 1:
                raise _needs_list(self._text[tree.start : tree.end])
        elif (kind := self._kinds[self._at]) in ("like", "ilike"):
            self._at += 1
            operands = [left, self._operation(_CONCAT)]
            if self._accept("escape"):
                operands.append(self._operation(_CONCAT))
            tree = self._tree(kind, tuple(operands), start)
        elif negated:  # `x NOT NULL`
            self._expect("null")
            tree = self._tree("is_null", (left,), start)
        else:
            tree, negated = self._is(left, start)
        return self._tree("not", (tree,), start) if negated else tree

    def _is(self, left: Tree, start: int) -> tuple[Tree, bool]:
        self._expect("is")
        negated = self._accept("not")
        for kind in ("null", "true", "false"):
            if self._accept(kind):
                return self._tree(f"is_{kind}", (left,), start), negated
        raise self._misplaced()

    def _tree(self, kind: str, operands: tuple[Tree, ...], start: int, value: str = "") -> Tree:
        depth = parts = 0
        for operand in operands:
            depth = max(depth, operand.depth)
            parts += operand.parts
        if depth >= MAX_DEPTH:
            raise too_deep()
        return Tree(kind, value, operands, depth + 1, parts + 1, start, self._tokens[self._at - 1].end)

    def _enter(self) -> None:
        self._nested += 1
        if self._nested > MAX_DEPTH:
            raise too_deep()

    def _take(self) -> Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _accept(self, kind: str) -> bool:
        found = self._kinds[self._at] == kind
        self._at += found
        return found

    def _expect(self, kind: str) -> Token:
        if self._kinds[self._at] != kind:
            raise self._misplaced()
        return self._take()

    def _misplaced(self) -> ExpressionError:
        """Build the error for the current token."""
        for token in self._tokens[max(self._at - 1, 0) : self._at + 1]:
            if token.kind == NAME and self._text[token.start] != '"' and token.value.lower() in LEFT_OUT:
                return unsupported_word(token.value)
        missing = self._kinds[self._at] == END
        token = self._tokens[self._at - missing]
        reason = "something is missing here" if missing else "this does not fit here"
        return ExpressionError(
            "syntax_error",
            f"cannot read `{shortened(self._text)}` at `{self._text[token.start : token.end]}`: {reason}; "
            "check operators and parentheses",
            token.start,
        )


def _needs_order(name: Token) -> ExpressionError:
    return ExpressionError(
        "syntax_error",
        f"expected {name.value}(0.95) WITHIN GROUP (ORDER BY x), got something else; write it so, or as "
        "quantile(x, 0.95)",
        name.start,
    )


def _needs_list(text: str) -> ExpressionError:
    return ExpressionError(
        "unsupported_syntax",
        f"`{shortened(text)}` cannot be used in an expression; write the values as a list in parentheses",
    )
