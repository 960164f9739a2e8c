"""Codes and wording of errors in expressions."""

from __future__ import annotations

import pytest

from mavstream_protocol.errors import ExpressionError
from mavstream_protocol.expressions.parser import parse_aggregate, parse_predicate, parse_scalar
from mavstream_protocol.schema import Field, FieldType

FIELDS = {
    field.name: field
    for field in (
        Field("temperature", FieldType.FLOAT),
        Field("n", FieldType.INT),
        Field("ok", FieldType.BOOL),
        Field("s", FieldType.STRING),
        Field("seen", FieldType.TIMESTAMP),
    )
}


def problem(text: str) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        parse_scalar(text, FIELDS)
    return caught.value


@pytest.mark.parametrize(
    ("text", "code", "detail"),
    [
        ("temprature > 3", "unknown_field", "there is no field `temprature`; did you mean `temperature`?"),
        ("zzz", "unknown_field", "there is no field `zzz`; known are temperature, n, ok, s, seen"),
        ("lowr(s)", "unknown_function", "there is no function `lowr`; did you mean lower or power or floor?"),
        ("lower(n)", "type_mismatch", "`lower(n)`: expected string, found int; write CAST(... AS string)"),
        (
            "s = 5",
            "type_mismatch",
            "`s = 5`: expected values of one type, found int and string; convert one side with "
            "CAST(... AS type)",
        ),
        (
            "ok + 1",
            "type_mismatch",
            "`ok + 1`: expected int or float, found bool; use numbers, or CAST(... AS float)",
        ),
        (
            "temperature // 2",
            "type_mismatch",
            "`temperature // 2`: expected int on both sides of //, found float; write floor(a / b)",
        ),
        (
            "CAST(seen AS int)",
            "type_mismatch",
            "`CAST(seen AS int)`: expected a type that converts to int, found timestamp; use epoch() "
            "for a number",
        ),
        ("lower()", "wrong_arguments", "`lower()`: lower takes 1 argument, found 0"),
        ("power(n)", "wrong_arguments", "`power(n)`: power takes 2 arguments, found 1"),
        ("substr(s)", "wrong_arguments", "`substr(s)`: substr takes 2 to 3 arguments, found 1"),
        (
            "round(temperature, n)",
            "type_mismatch",
            "`round(temperature, n)`: expected a whole number as digits, found an expression; "
            "write a constant like round(x, 2)",
        ),
        (
            "sum(n) > 1",
            "aggregate_not_allowed",
            "`sum(n)`: sum is an aggregate and cannot stand here; compute it in an aggregate node",
        ),
        (
            "seen > 'noon'",
            "invalid_literal",
            "'noon' is not a timestamp; write one in UTC, like '2026-01-31 12:00:00'",
        ),
        ("1e999", "invalid_literal", "1e999 is beyond the largest float, 1.797e308; write less"),
        (
            "9223372036854775808",
            "invalid_literal",
            "9223372036854775808 does not fit into 64 bits; write it as a float, such as "
            "9223372036854775808.0",
        ),
        ("", "syntax_error", "the expression is empty; write one such as `temperature > 30`"),
        (
            "n +",
            "syntax_error",
            "cannot read `n +` at `+`: something is missing here; check operators and parentheses",
        ),
        (
            "n 5",
            "syntax_error",
            "cannot read `n 5` at `5`: this does not fit here; check operators and parentheses",
        ),
        ("'abc", "syntax_error", "`'abc` has a text or quoted name that does not end; close the quote"),
        (
            "n + " * 100 + "n",
            "expression_too_deep",
            "the expression is nested more than 64 levels deep; compute parts of it in a project below",
        ),
        (
            "n" * 4097,
            "expression_too_long",
            "the expression has 4097 characters, at most 4096 are allowed; compute parts of it in a "
            "project below",
        ),
    ],
)
def test_wording(text: str, code: str, detail: str) -> None:
    found = problem(text)
    assert (found.code, found.detail) == (code, detail)


@pytest.mark.parametrize(
    "text",
    [
        "(SELECT 1)",
        "n IN (SELECT 1)",
        "EXISTS (SELECT 1)",
        "count(*) OVER ()",
        "*",
        "s.*",
        "x -> x + 1",
        "?",
        "$1",
        ":name",
        "[1, 2]",
        "{'a': 1}",
        "n; n",
        "n ** 2",
        "n & 1",
        "INTERVAL 1 HOUR",
        "CAST(n AS decimal(3, 1))",
        "CAST(n AS varchar(3))",
        "(1, 2)",
        "s COLLATE nocase",
        "s ILIKE 'a' ESCAPE 'x'",
        "extract(fortnight FROM seen)",
        "INTERVAL '1' SECOND",
        "n + 1 = INTERVAL '1' SECOND",
        "s LIKE 'a' ESCAPE 'ab'",
    ],
)
def test_unsupported_syntax_is_refused(text: str) -> None:
    assert problem(text).code in ("unsupported_syntax", "unknown_function")


def test_the_error_for_an_ambiguous_name_asks_for_the_side() -> None:
    sides = {name: Field(name, FieldType.FLOAT) for name in ("l.x", "r.x")}
    with pytest.raises(ExpressionError) as caught:
        parse_scalar("x > 1", sides)
    assert caught.value.detail == "there is no field `x`; write `l.x` or `r.x`"


def test_predicates_are_bool() -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_predicate("n + 1", FIELDS)
    assert caught.value.code == "type_mismatch"
    assert caught.value.detail == "`n + 1`: expected bool, found int; write a comparison such as `x > 0`"


@pytest.mark.parametrize(
    ("text", "code", "detail"),
    [
        (
            "n + count(*)",
            "not_grouped",
            "`n` is neither aggregated nor a grouping column (these are s); "
            "add it to `by` or use an aggregate such as first(n)",
        ),
        (
            "5",
            "aggregate_required",
            "`5` uses no aggregate and no grouping column; use one such as count(*)",
        ),
        (
            "sum(avg(n))",
            "aggregate_not_allowed",
            "`avg(n)`: avg is an aggregate and cannot stand here; compute it in an aggregate node",
        ),
        (
            "avg(s)",
            "type_mismatch",
            "`avg(s)`: expected float or int as argument of avg, found string; "
            "use count, min, max, first or last, or CAST the argument",
        ),
        ("sum(n, n)", "wrong_arguments", "`sum(n, n)`: sum takes 1 argument, found 2"),
        ("quantile(n)", "wrong_arguments", "`quantile(n)`: quantile takes 2 arguments, found 1"),
        *[
            (
                f"quantile(n, {fraction})",
                "wrong_arguments",
                f"expected a constant from 0 to 1 as the second argument of quantile, got `{fraction}`; "
                "write for example quantile(x, 0.95)",
            )
            for fraction in ("1.5", "-0.1", "n / 2", "'a'", "1e400", "NULL")
        ],
        (
            "percentile_cont(0.5)",
            "syntax_error",
            "expected percentile_cont(0.95) WITHIN GROUP (ORDER BY x), got something else; write it so, or "
            "as quantile(x, 0.95)",
        ),
        (
            "sum(DISTINCT n)",
            "unsupported_syntax",
            "`sum(DISTINCT n)`: DISTINCT works as count(DISTINCT x) only; leave it out",
        ),
    ],
)
def test_wording_of_aggregates(text: str, code: str, detail: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_aggregate(text, FIELDS, ["s"])
    assert (caught.value.code, caught.value.detail) == (code, detail)
