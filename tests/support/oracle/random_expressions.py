"""Random rows and random well-typed expressions over them, from a seeded generator."""

from __future__ import annotations

import random
import re
from typing import Any

from mavstream_protocol.schema import Field, FieldType

INT, FLOAT, BOOL, STRING, TIMESTAMP = (
    FieldType.INT,
    FieldType.FLOAT,
    FieldType.BOOL,
    FieldType.STRING,
    FieldType.TIMESTAMP,
)
COLUMNS = tuple(
    Field(name, type_, True)
    for names, type_ in (("ab", INT), ("xy", FLOAT), ("pq", BOOL), ("st", STRING), ("uv", TIMESTAMP))
    for name in names
)
FIELDS = {field.name: field for field in COLUMNS}

_INTS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    10,
    -5,
    100,
    999,
    15,
    25,
    -25,
    4611686018427387904,
    9223372036854775807,
    -9223372036854775808,
)
_FLOATS = (
    0.0,
    -0.0,
    1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    3.7,
    100.25,
    1e-3,
    12345.678,
    -7.25,
    1e10,
    1e300,
    -1e308,
    2.675,
)
_TEXTS = (
    "", "a", "b", "abc", "ABC", "Abc", "hello world", "a%b", "a_b", "été", "straße", "日本", "🎉x", "12",
    " 7 ", "-3.5", "1e3", "true", "no", "2024-02-29 12:30:45", "2024-01-01", "2024-02-30", "x'y", "aaab",
    "9223372036854775808", "0x1f",
)  # fmt: skip
_TIMES = (
    0,
    1,
    -1,
    1704067200000000,
    1704067200123456,
    1709208000500000,
    -62135596800000000,
    951868799999999,
    4102444800000000,
)
_PATTERNS = ("a%", "%b", "%a%b%", "_b%", "a_b", "%", "", "__", "%l%o%", "été", "a!%b", "%é%")


def random_rows(generator: random.Random, count: int) -> list[tuple[Any, ...]]:
    """Rows for `FIELDS`: edge cases and ordinary values, a fifth of them null."""
    return [tuple(_value(generator, field.type) for field in COLUMNS) for _ in range(count)]


def _value(generator: random.Random, type_: FieldType) -> Any:
    if generator.random() < 0.2:
        return None
    plain = generator.random() < 0.5
    match type_:
        case FieldType.INT:
            return generator.randint(-50, 50) if plain else generator.choice(_INTS)
        case FieldType.FLOAT:
            return round(generator.uniform(-100, 100), 2) if plain else generator.choice(_FLOATS)
        case FieldType.BOOL:
            return generator.random() < 0.5
        case FieldType.STRING:
            return generator.choice(_TEXTS)
    return generator.randint(0, 2_000_000_000) * 1_000_000 if plain else generator.choice(_TIMES)


# Holes: i int, f float, n int or float, b bool, s string, t timestamp, = the type that is wanted, p a LIKE
# pattern, k a small whole number, and for IN and BETWEEN, whose operands shall not fail, leaves I, F, S, T.
# A capital X before the hole asks for results that are defined to the last bit.
_FORMS: dict[FieldType, tuple[str, ...]] = {
    INT: (
        "({i} + {i})", "({i} - {i})", "({i} * {i})", "({i} // {i})", "({i} % {i})", "(- {i})",
        "abs({i})", "round({i})", "round({i}, -{k})", "round({i}, {k})", "length({s})", "hour({t})",
        "minute({t})", "second({t})", "dayofweek({t})",
        "year({t})", "month({t})", "day({t})", "CAST({Xf} AS INT)", "CAST({b} AS INTEGER)",
        "CAST({s} AS BIGINT)", "TRY_CAST({s} AS INT)", "TRY_CAST({Xf} AS INT)",
    ),
    FLOAT: (
        "({n} / {n})", "({f} + {n})", "({f} - {n})", "({f} * {n})", "({n} * {f})", "({Xf} % {Xf})",
        "(- {f})", "abs({f})", "floor({Xn})", "ceil({Xn})", "round({Xf})", "round({Xf}, {k})",
        "round({Xf}, -{k})", "sqrt({n})", "epoch({t})", "CAST({i} AS FLOAT)", "CAST({b} AS DOUBLE)",
        "CAST({s} AS DOUBLE)", "TRY_CAST({s} AS FLOAT)",
    ),
    BOOL: (
        "({b} AND {b})", "({b} OR {b})", "({b} AND {b} AND {b})", "(NOT {b})", "({Xn} < {Xn})",
        "({Xn} <= {Xn})", "({Xn} = {Xn})", "({Xn} <> {Xn})", "({Xn} > {Xn})", "({Xn} >= {Xn})",
        "({s} = {s})", "({s} <> {s})", "({s} < {s})", "({s} >= {s})", "({t} < {t})", "({t} = {t})",
        "({b} = {b})", "({b} < {b})", "({t} >= '2024-01-01')", "({s} IS NULL)", "({Xn} IS NOT NULL)",
        "({b} IS TRUE)", "({b} IS NOT FALSE)", "({I} BETWEEN {I} AND {I})",
        "({F} NOT BETWEEN {F} AND {I})", "({S} BETWEEN {S} AND {S})", "({I} IN (1, 2, {I}))",
        "({I} NOT IN (1, 2, 3, 7, 10, 100))", "({S} IN ('a', 'abc'))", "({S} IN ('a', {S}))",
        "({S} NOT IN ('a', 'abc', 'b', 'no', '12'))", "({F} IN (0.5, 1.5, NULL))",
        "({T} IN ('2024-01-01', {T}))", "({s} LIKE {p})", "({s} NOT LIKE {p})",
        "({s} LIKE {p} ESCAPE '!')", "({s} LIKE {s})",
        "({s} ILIKE {p})", "({s} NOT ILIKE {s})", "contains({s}, {s})", "starts_with({s}, {s})",
        "CAST({i} AS BOOL)", "CAST({Xf} AS BOOLEAN)", "CAST({s} AS BOOL)", "TRY_CAST({s} AS BOOL)",
    ),
    STRING: (
        "lower({s})", "upper({s})", "({s} || {s})", "({s} || {i})", "concat({s}, {s})",
        "concat({s}, {i}, {b})", "concat({s}, '-')", "substr({s}, {k})", "substr({s}, {i})",
        "substr({s}, {k}, {k})", "substr({s}, -{k}, {i})", "CAST({i} AS STRING)",
        "CAST({Xf} AS VARCHAR)", "CAST({b} AS TEXT)", "CAST({t} AS STRING)",
    ),
    TIMESTAMP: (
        "CAST(upper(s) AS TIMESTAMP)", "CAST(s AS TIMESTAMP)", "TRY_CAST({S} AS TIMESTAMP)",
        "date_trunc('minute', {t})", "date_trunc('week', {t})", "date_trunc('quarter', {t})",
        "date_trunc('year', {t})", "({t} + INTERVAL '90' MINUTE)", "(INTERVAL '2 days' + {t})",
        "({t} - INTERVAL 5 SECOND)",
    ),
}  # fmt: skip
_INEXACT = ("ln({n})", "exp({n})", "power({n}, {n})", "pow({f}, 2)")
_ANY_TYPE = (
    "CASE WHEN {b} THEN {=} END", "CASE WHEN {b} THEN {=} WHEN {b} THEN {=} ELSE {=} END",
    "if({b}, {=}, {=})", "CASE {i} WHEN 1 THEN {=} WHEN {i} THEN {=} ELSE {=} END",
    "CASE {s} WHEN 'a' THEN {=} WHEN {s} THEN {=} END", "coalesce({=}, {=})", "coalesce({=}, {=}, {=})",
    "ifnull({=}, {=})", "nullif({X=}, {X=})", "least({=}, {=})", "greatest({=}, {=}, {=})",
)  # fmt: skip
_HOLE = re.compile(r"\{(X?)(.)\}")
_TYPES = {"i": INT, "f": FLOAT, "b": BOOL, "s": STRING, "t": TIMESTAMP}
_LITERALS = {
    INT: ("0", "1", "2", "3", "10", "-1", "-7", "100", "4611686018427387904"),
    FLOAT: ("0.5", "1.5", "-2.25", "30.0", "1e3", "0.0", "1.8", "1e200"),
    BOOL: ("TRUE", "FALSE"),
    STRING: tuple("'" + text.replace("'", "''") + "'" for text in _TEXTS),
    TIMESTAMP: ("TIMESTAMP '2024-01-01'", "TIMESTAMP '2000-02-29 23:59:59.999999'"),
}


def random_expression(generator: random.Random, depth: int) -> str:
    """The text of an expression of a random type, at most that deep."""
    return _write(generator, generator.choice(list(FieldType)), depth, False)


def _write(generator: random.Random, type_: FieldType, depth: int, exact: bool) -> str:
    if depth <= 0 or generator.random() < 0.1:
        return _leaf(generator, type_)
    forms = _FORMS[type_] + _INEXACT if type_ is FLOAT and not exact else _FORMS[type_]
    form = generator.choice(_ANY_TYPE if generator.random() < 0.2 else forms)

    def filled(hole: re.Match[str]) -> str:
        kind = hole[2]
        if kind == "=":
            return _write(generator, type_, depth - 1, exact or bool(hole[1]))
        if kind == "k":
            return str(generator.randint(0, 5))
        if kind == "p":
            return f"'{generator.choice(_PATTERNS)}'"
        if kind.isupper():
            return _leaf(generator, _TYPES[kind.lower()])
        wanted = generator.choice((INT, FLOAT)) if kind == "n" else _TYPES[kind]
        return _write(generator, wanted, depth - 1, exact or bool(hole[1]))

    return _HOLE.sub(filled, form)


def _leaf(generator: random.Random, type_: FieldType) -> str:
    if generator.random() < 0.7:
        return generator.choice([field.name for field in COLUMNS if field.type is type_])
    if generator.random() < 0.1:
        return f"CAST(NULL AS {type_})"
    return generator.choice(_LITERALS[type_])
