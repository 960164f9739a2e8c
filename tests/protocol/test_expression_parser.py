"""The expression parser: names, types, nulls, aggregates, limits."""

from __future__ import annotations

import time

import pytest

from mavstream_protocol.errors import ExpressionError
from mavstream_protocol.expressions.parser import parse_aggregate, parse_predicate, parse_scalar
from mavstream_protocol.expressions.syntax import parse_syntax
from mavstream_protocol.expressions.typed import AggregateCall, Call, ColumnRef, Literal
from mavstream_protocol.schema import Field, FieldType

INT, FLOAT, BOOL, STRING, TIMESTAMP = (
    FieldType.INT,
    FieldType.FLOAT,
    FieldType.BOOL,
    FieldType.STRING,
    FieldType.TIMESTAMP,
)
FIELDS = {
    field.name: field
    for field in (
        Field("temperature", FLOAT),
        Field("n", INT),
        Field("maybe", INT, nullable=True),
        Field("ok", BOOL),
        Field("location", STRING),
        Field("at", TIMESTAMP),
        Field("order", INT),
        Field("two words", INT),
    )
}
JOINED = {name: Field(name, FLOAT) for name in ("l.temperature", "r.temperature", "r.threshold")}


def test_a_comparison() -> None:
    assert parse_predicate("temperature > 30", FIELDS) == Call(
        ">", (ColumnRef("temperature", FLOAT, False), Literal(30.0, FLOAT)), BOOL, False
    )


def test_dotted_names_are_keys_of_a_join() -> None:
    expression = parse_scalar("l.temperature > R.Threshold", JOINED)
    assert isinstance(expression, Call)
    assert expression.arguments == (
        ColumnRef("l.temperature", FLOAT, False),
        ColumnRef("r.threshold", FLOAT, False),
    )


def test_names_are_exact_first_then_unique_in_another_case() -> None:
    fields = {"a": Field("a", INT), "A": Field("A", FLOAT), "Temp": Field("Temp", INT)}
    assert parse_scalar("A", fields) == ColumnRef("A", FLOAT, False)
    assert parse_scalar("a", fields) == ColumnRef("a", INT, False)
    assert parse_scalar('"TEMP"', fields) == ColumnRef("Temp", INT, False)


@pytest.mark.parametrize("text", ['"two words"', "order", '"order"', "at"])
def test_names_that_sql_uses_or_quotes(text: str) -> None:
    assert isinstance(parse_scalar(text, FIELDS), ColumnRef)


@pytest.mark.parametrize(
    ("text", "type_", "nullable"),
    [
        ("n", INT, False),
        ("maybe", INT, True),
        ("n + 1", INT, True),
        ("n + 1.5", FLOAT, True),
        ("n / 2", FLOAT, True),
        ("n = 1", BOOL, False),
        ("maybe = 1", BOOL, True),
        ("maybe IS NULL", BOOL, False),
        ("coalesce(maybe, 1)", INT, False),
        ("coalesce(maybe, 1.5)", FLOAT, False),
        ("CASE WHEN ok THEN 1 END", INT, True),
        ("CASE WHEN ok THEN 1 ELSE 2.5 END", FLOAT, False),
        ("nullif(n, 1.0)", INT, True),
        ("length(location)", INT, False),
        ("concat(location, maybe)", STRING, False),
        ("location || n", STRING, False),
        ("CAST(n AS double)", FLOAT, False),
        ("location::int", INT, True),
        ("CAST(NULL AS timestamp)", TIMESTAMP, True),
        ("floor(n)", FLOAT, False),
        ("round(n, -2)", INT, True),
        ("at > '2024-01-01'", BOOL, False),
        ("if(ok, at, '2024-01-01')", TIMESTAMP, False),
        ("NULL", INT, True),
        ("hour(at)", INT, False),
    ],
)
def test_types_and_nulls(text: str, type_: FieldType, nullable: bool) -> None:
    expression = parse_scalar(text, FIELDS)
    assert (expression.type, expression.nullable) == (type_, nullable)


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("1", Literal(1, INT)),
        ("-9223372036854775808", Literal(-(2**63), INT)),
        ("1.5", Literal(1.5, FLOAT)),
        ("1e3", Literal(1000.0, FLOAT)),
        ("'it''s'", Literal("it's", STRING)),
        ("TRUE", Literal(True, BOOL)),
        ("TIMESTAMP '1970-01-01 00:00:01'", Literal(1_000_000, TIMESTAMP)),
    ],
)
def test_literals(text: str, literal: Literal) -> None:
    assert parse_scalar(text, FIELDS) == literal


def test_aggregates_are_calls_and_a_result_over_them() -> None:
    parsed = parse_aggregate("sum(n) / count(*)", FIELDS, ())
    assert parsed.calls == (
        AggregateCall("sum", ColumnRef("n", INT, False), False, INT, True),
        AggregateCall("count", None, False, INT, False),
    )
    assert isinstance(parsed.result, Call)
    assert [type(argument) for argument in parsed.result.arguments] == [Call, Call]


def test_equal_aggregate_calls_are_shared() -> None:
    parsed = parse_aggregate("max(n) - min(n) + max(N)", FIELDS, ())
    assert [call.function for call in parsed.calls] == ["max", "min"]


def test_grouping_columns_may_stand_alone() -> None:
    assert parse_aggregate("location", FIELDS, ["location"]).result == ColumnRef("location", STRING, False)
    assert parse_aggregate("upper(location) || count(*)", FIELDS, ["location"]).result.type is STRING


@pytest.mark.parametrize(
    ("text", "type_", "distinct"),
    [
        ("count(DISTINCT location)", INT, True),
        ("count(n)", INT, False),
        ("sum(n * 2)", INT, False),
        ("sum(temperature)", FLOAT, False),
        ("avg(n)", FLOAT, False),
        ("median(n)", FLOAT, False),
        ("quantile(n, 0.95)", FLOAT, False),
        ("PERCENTILE_CONT(1) WITHIN GROUP (ORDER BY n)", FLOAT, False),
        ("stddev_samp(n)", FLOAT, False),
        ("min(location)", STRING, False),
        ("last(at)", TIMESTAMP, False),
        ("first(ok)", BOOL, False),
    ],
)
def test_types_of_aggregates(text: str, type_: FieldType, distinct: bool) -> None:
    (call,) = parse_aggregate(text, FIELDS, ()).calls
    assert (call.type, call.distinct) == (type_, distinct)


def test_long_chains_of_and_are_flat() -> None:
    expression = parse_predicate(" AND ".join(["ok"] * 400), FIELDS)
    assert isinstance(expression, Call)
    assert len(expression.arguments) == 400


def test_sixty_levels_of_nesting_are_accepted() -> None:
    assert parse_scalar("abs(" * 60 + "n" + ")" * 60, FIELDS).type is INT
    assert parse_scalar("(" * 60 + "n" + ")" * 60, FIELDS).type is INT


@pytest.mark.parametrize(
    "text",
    [
        "(" * 2000,
        "(" * 2000 + "n" + ")" * 2000,
        "abs(" * 600 + "n" + ")" * 600,
        "NOT " * 1000 + "ok",
        "- " * 2000 + "n",
        "+".join(["n"] * 2000),
        "n" + "::int" * 800,
        "CASE WHEN ok THEN " * 150 + "n" + " END" * 150,
        "n IN (" * 500 + "n" + ")" * 500,
        "n = " * 1000 + "n",
        "[" * 2000,
        "{" * 2000,
        "timestamp(" * 300 + "n" + ")" * 300,
        "int(" * 30 + "n" + ")" * 30,
        "(n limit " * 30 + "n" + ")" * 30,
        "case when if n " * 30 + " end" * 30,
        "exists (select " * 60,
        "interval " * 400,
        "n -> " * 600 + "n",
        "'" * 4001,
        '"' * 4001,
        "/*" * 2000,
    ],
)
def test_oversized_or_deep_texts_are_refused_quickly(text: str) -> None:
    started = time.process_time()
    with pytest.raises(ExpressionError):
        parse_scalar(text, FIELDS)
    assert time.process_time() - started < 1


def test_a_short_text_is_parsed_once_and_a_long_one_is_not_kept() -> None:
    text = "temperature > 30 AND n = 7"
    assert parse_syntax(text) is parse_syntax(text)
    long = f"{text} AND room = '{'x' * 300}'"
    assert parse_syntax(long) == parse_syntax(long)
    assert parse_syntax(long) is not parse_syntax(long)
    for _ in range(2):
        with pytest.raises(ExpressionError, match="is empty"):
            parse_syntax("  ")
