"""Builders of Spark SQL as sqlglot trees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot import exp

from mavstream_protocol.schema import FieldType

Tree = exp.Expr
TRUE, FALSE, NULL = exp.true(), exp.false(), exp.null()

SPARK_TYPES = {
    FieldType.INT: "BIGINT",
    FieldType.FLOAT: "DOUBLE",
    FieldType.BOOL: "BOOLEAN",
    FieldType.STRING: "STRING",
    FieldType.TIMESTAMP: "TIMESTAMP",
}


def written(tree: Tree) -> str:
    """Return the Spark SQL of a tree."""
    return tree.sql(dialect="spark")


def column(name: str) -> Tree:
    """Return a column by its full name, dots included."""
    return exp.Column(this=exp.to_identifier(name, quoted=True))


def call(name: str, *arguments: Tree) -> Tree:
    """Return a call of one of Spark's functions."""
    return exp.Anonymous(this=name, expressions=[argument.copy() for argument in arguments])


def binary(kind: type[exp.Binary], left: Tree, right: Tree) -> Tree:
    """Return a binary operation in parentheses."""
    return exp.Paren(this=kind(this=left.copy(), expression=right.copy()))


def converted(value: Tree, type_: FieldType) -> Tree:
    """Return a cast to one of our types, as Spark does it."""
    return _cast(value, SPARK_TYPES[type_])


def integer(value: int) -> Tree:
    """Return a BIGINT; cast from text, because the smallest one cannot be written as a literal."""
    return _cast(exp.Literal.string(str(value)), "BIGINT")


def constant(value: int | float | bool | str | None, type_: FieldType) -> Tree:
    """Return a literal of one of our types; timestamps are microseconds."""
    if value is None:
        return _cast(NULL, SPARK_TYPES[type_])
    match type_:
        case FieldType.BOOL:
            return TRUE if value else FALSE
        case FieldType.STRING:
            return exp.Literal.string(str(value))
        case FieldType.TIMESTAMP:
            return call("timestamp_micros", integer(int(value)))
        case FieldType.INT:
            return integer(int(value))
    return _cast(exp.Literal.string(repr(float(value))), "DOUBLE")


def any_of(conditions: Iterable[Tree | None]) -> Tree | None:
    """Return the OR of the conditions that are not None, or None."""
    return _chained(exp.Or, conditions)


def all_of(conditions: Iterable[Tree | None]) -> Tree | None:
    """Return the AND of the conditions that are not None, or None."""
    return _chained(exp.And, conditions)


def negated(condition: Tree) -> Tree:
    """Return NOT."""
    return exp.Paren(this=exp.Not(this=condition.copy()))


def is_null(value: Tree) -> Tree:
    """Return the test for null."""
    return exp.Paren(this=exp.Is(this=value.copy(), expression=exp.null()))


def present(*values: Tree) -> Tree:
    """Return the test that none of the values is null."""
    found = all_of(negated(is_null(value)) for value in values)
    assert found is not None
    return found


def surely(condition: Tree) -> Tree:
    """Return a condition with false instead of null."""
    return call("coalesce", condition, FALSE)


def choice(branches: Sequence[tuple[Tree, Tree]], default: Tree) -> Tree:
    """Return CASE WHEN ... THEN ... ELSE ... END."""
    ifs = [exp.If(this=condition.copy(), true=value.copy()) for condition, value in branches]
    return exp.Paren(this=exp.Case(ifs=ifs, default=default.copy()))


def _chained(kind: type[exp.And] | type[exp.Or], conditions: Iterable[Tree | None]) -> Tree | None:
    found: Tree | None = None
    for condition in conditions:
        if condition is not None:
            found = condition if found is None else binary(kind, found, condition)
    return found


def _cast(value: Tree, type_: str) -> Tree:
    return exp.Cast(this=value.copy(), to=exp.DataType.build(type_, dialect="spark"))
