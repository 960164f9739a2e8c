"""Random well-typed expressions whose rows cannot fail: scalars, predicates and aggregates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from tests.support.differential.columns import BOOL, FLOAT, INT, ROUGH, STRING, TIMESTAMP, ColumnShape

from mavstream_protocol.instants import format_instant
from mavstream_protocol.schema import FieldType

Typed = tuple[str, bool]
"""An expression's text, and whether its value is exact."""

ORDER_SENSITIVE = ("first", "last")


class ExpressionWriter:
    """Writes expressions over the columns of an input; keys of `columns` are how a column is referred to."""

    def __init__(self, random: Random, columns: Mapping[str, ColumnShape], base: int) -> None:
        self._random = random
        self._columns = columns
        self._base = base
        self._writers: dict[FieldType, Callable[[int], Typed]] = {
            INT: self._int,
            FLOAT: self._float,
            BOOL: self._bool,
            STRING: self._string,
            TIMESTAMP: self._timestamp,
        }

    def scalar(self, type_: FieldType, depth: int = 2, exact: bool = False) -> Typed:
        """Write an expression of a type, made of exact columns only if asked for."""
        for _ in range(8):
            written = self._write(type_, depth)
            if written[1] or not exact:
                return written
        return self._literal(type_), True

    def predicate(self, depth: int = 2) -> str:
        """Write a condition; it compares exact values only."""
        return self._bool(depth)[0]

    def _write(self, type_: FieldType, depth: int) -> Typed:
        if depth <= 0 or self._random.random() < 0.4:
            return self._leaf(type_)
        write = self._writers[type_]
        text, exact = self._case(type_, depth) if self._random.random() < 0.15 else write(depth)
        return f"({text})", exact

    def _exact(self, type_: FieldType, depth: int) -> str:
        return self.scalar(type_, depth, exact=True)[0]

    def _leaf(self, type_: FieldType) -> Typed:
        fitting = [(ref, column) for ref, column in self._columns.items() if column.type is type_]
        if fitting and self._random.random() < 0.9:
            ref, column = self._random.choice(fitting)
            return ref, column.exact
        if self._random.random() < 0.1:
            return f"CAST(NULL AS {type_})", True
        return self._literal(type_), True

    def _literal(self, type_: FieldType) -> str:
        match type_:
            case FieldType.INT:
                return str(self._random.choice((0, 1, 2, 3, -1)))
            case FieldType.FLOAT:
                return self._random.choice(("0.0", "0.5", "-1.25", "100.0"))
            case FieldType.BOOL:
                return self._random.choice(("TRUE", "FALSE"))
            case FieldType.STRING:
                return self._random.choice(("''", "'a'", "'b'", "'日本'", "'it''s'"))
        return f"TIMESTAMP '{format_instant(self._base + 1000 * self._random.randrange(-2, 60)).rstrip('Z')}'"

    def _case(self, type_: FieldType, depth: int) -> Typed:
        chosen, first = self._write(type_, depth - 1)
        other, second = self._write(type_, depth - 1)
        if self._random.random() < 0.3:
            return f"coalesce({chosen}, {other})", first and second
        return f"CASE WHEN {self.predicate(depth - 1)} THEN {chosen} ELSE {other} END", first and second

    def _int(self, depth: int) -> Typed:
        a, b = self._exact(INT, depth - 1), self._exact(INT, depth - 1)
        forms = [f"{a} % 7 + {b} % 5", f"({a} % 1000) * 3", f"abs({a} % 100)", f"({a} % 50) // 3"]
        forms += [f"length({self._exact(STRING, depth - 1)})", f"-({a} % 9)", f"coalesce({a}, -1)"]
        forms += [f"CAST({self._exact(BOOL, depth - 1)} AS INT)", f"nullif({a}, {b})"]
        return self._random.choice(forms), True

    def _float(self, depth: int) -> Typed:
        text, exact = self._write(FLOAT, depth - 1)
        whole = self._exact(INT, depth - 1)
        return self._random.choice(
            (
                (f"{text} + 0.25", exact),
                (f"{text} * 2.0", exact),
                (f"{text} - {whole} % 10", exact),
                (f"coalesce({text}, 0.0)", exact),
                (f"CAST({whole} % 1000 AS FLOAT)", True),
                (f"({whole} % 100) / 8", True),
                (f"{text} * 1.8 + 32", False),
            )
        )

    def _string(self, depth: int) -> Typed:
        text = self._exact(STRING, depth - 1)
        forms = [f"{text} || 'x'", f"substr({text}, 1, 2)", f"coalesce({text}, '-')"]
        forms += [f"concat({text}, {self._exact(INT, depth - 1)})", f"nullif({text}, 'a')"]
        return self._random.choice(forms), True

    def _timestamp(self, depth: int) -> Typed:
        if self._random.random() < 0.5:
            return f"coalesce({self._exact(TIMESTAMP, depth - 1)}, {self._literal(TIMESTAMP)})", True
        return self._leaf(TIMESTAMP)

    def _bool(self, depth: int) -> Typed:
        random = self._random
        forms = [
            form for ref, column in self._columns.items() if column.exact for form in _tests(ref, column)
        ]
        forms += [self._comparison(column.type, depth) for column in self._columns.values()]
        if depth > 0 and random.random() < 0.5:
            left, right = self._bool(depth - 1)[0], self._bool(depth - 1)[0]
            forms = [f"({left}) OR ({right})", f"({left}) OR ({right})", f"({left}) AND ({right})"]
            forms += [f"NOT ({left})", f"({left}) IS NOT TRUE"]
        return random.choice(forms), True

    def _comparison(self, type_: FieldType, depth: int) -> str:
        sign = self._random.choice(("=", "<>", "<", "<=", ">", ">="))
        return f"{self._exact(type_, depth - 1)} {sign} {self._exact(type_, depth - 1)}"


def _tests(ref: str, column: ColumnShape) -> tuple[str, ...]:
    """Return conditions on a column that some rows are likely to meet."""
    match column.type:
        case FieldType.INT:
            return (f"{ref} % 3 <> 1", f"{ref} BETWEEN -1 AND 2", f"{ref} IN (0, 1, 3, 5, 10)", f"{ref} > 0")
        case FieldType.FLOAT:
            return (f"{ref} > -1.5", f"{ref} <= 2.5", f"{ref} IS NOT NULL")
        case FieldType.BOOL:
            return (ref, f"NOT {ref}", f"{ref} IS NULL")
        case FieldType.STRING:
            return (f"{ref} IN ('a', 'é', '')", f"{ref} LIKE '%a%'", f"{ref} >= 'a'", f"length({ref}) < 2")
    return (f"{ref} IS NOT NULL", f"second({ref}) < 30")


class AggregateWriter:
    """Writes the computed columns of an aggregate."""

    def __init__(
        self, random: Random, columns: Sequence[ColumnShape], base: int, ordered: bool, tells_order: bool
    ) -> None:
        self._random = random
        self._columns = columns
        self._functions = ["count(*)", "count", "distinct", "sum", "avg", "min", "max", "stddev", "quantile"]
        if ordered:
            self._functions += ORDER_SENSITIVE * (4 if tells_order else 1)
        self._scalars = ExpressionWriter(random, {c.name: c for c in columns}, base)

    def column(self, name: str, by: Sequence[ColumnShape]) -> tuple[str, ColumnShape]:
        """Write one computed column: a call, or an expression over calls and grouping columns."""
        if self._random.random() < 0.15:
            return self._combined(name, by)
        return self._call(name)

    def _combined(self, name: str, by: Sequence[ColumnShape]) -> tuple[str, ColumnShape]:
        keys = [column.name for column in by if column.type is INT]
        if keys and self._random.random() < 0.5:
            return f"{self._random.choice(keys)} % 10 + count(*)", ColumnShape(name, INT)
        argument, exact = self._scalars.scalar(INT, 1)
        text = self._random.choice(
            (
                f"max({argument}) - min({argument})",
                f"sum({argument} % 10) % 7",
                f"count(*) * 2 - count({argument})",
            )
        )
        return text, ColumnShape(name, INT, exact)

    def _call(self, name: str) -> tuple[str, ColumnShape]:
        function = self._random.choice(self._functions)
        if function == "count(*)":
            return function, ColumnShape(name, INT)
        if function in ("sum", "avg", "stddev", "quantile"):
            argument, type_, exact = self._argument((INT, FLOAT), function == "stddev", ROUGH.name)
            result = type_ if function == "sum" else FLOAT
            if function == "quantile":
                return self._quantile(argument), ColumnShape(name, FLOAT, False)
            return f"{function}({argument})", ColumnShape(name, result, exact and function == "sum")
        argument, type_, exact = self._argument(tuple(FieldType), function == "distinct")
        if function == "count":
            return f"count({argument})", ColumnShape(name, INT)
        if function == "distinct":
            return f"count(DISTINCT {argument})", ColumnShape(name, INT)
        return f"{function}({argument})", ColumnShape(name, type_, exact)

    def _quantile(self, argument: str) -> str:
        fraction = self._random.choice(("0", "0.05", "0.5", "0.9", "0.999", "1.0"))
        forms = (f"quantile({argument}, {fraction})", f"quantile({argument}, {fraction})")
        forms += (f"median({argument})", f"percentile_cont({fraction}) WITHIN GROUP (ORDER BY {argument})")
        return self._random.choice(forms)

    def _argument(
        self, types: Sequence[FieldType], exact: bool, also: str | None = None
    ) -> tuple[str, FieldType, bool]:
        fitting = [c for c in self._columns if c.type in types and (c.exact or not exact or c.name == also)]
        if fitting and self._random.random() < 0.8:
            column = self._random.choice(fitting)
            return column.name, column.type, column.exact
        type_ = self._random.choice(types)
        text, is_exact = self._scalars.scalar(type_, 1, exact)
        return text, type_, is_exact
