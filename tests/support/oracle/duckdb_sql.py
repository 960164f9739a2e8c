"""Translate our expression text for DuckDB, the oracle, with our types and literals."""

from __future__ import annotations

import duckdb
from sqlglot import exp, parse_one

_TYPES = {
    exp.DType.INT: exp.DType.BIGINT,
    exp.DType.FLOAT: exp.DType.DOUBLE,
    exp.DType.TIMESTAMP: exp.DType.TIMESTAMP,
}


def connect() -> duckdb.DuckDBPyConnection:
    """Open an empty database with the settings that define what our expressions mean."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET ieee_floating_point_ops = false")
    connection.execute("SET error_on_division_by_zero = false")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def to_duckdb(text: str) -> str:
    """Rewrite an expression: whole literals as BIGINT, others as DOUBLE, INT and FLOAT as 64 bits."""
    tree = parse_one(text, read="duckdb", into=exp.Condition)
    return tree.transform(rewritten).sql(dialect="duckdb")


def rewritten(node: exp.Expr) -> exp.Expr:
    """Return a part of an expression with our types and literals."""
    if isinstance(node.parent, exp.Interval):
        return node
    if isinstance(node, exp.Quantile):  # DuckDB's own does not interpolate
        return _quantile(node.this, node.args["quantile"])
    if isinstance(node, exp.WithinGroup):
        return _quantile(node.expression.expressions[0].this, node.this.this)
    if isinstance(node, exp.DataType) and node.this in _TYPES:
        return exp.DataType(this=_TYPES[node.this])
    if isinstance(node.parent, exp.Round) and node.arg_key == "decimals":
        return node  # DuckDB wants an INTEGER here
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return _number(f"-{node.this.this}")  # with its sign, or the smallest integer would not fit
    if isinstance(node, exp.Literal) and not node.is_string and not isinstance(node.parent, exp.Neg):
        return _number(str(node.this))
    return node


def _quantile(argument: exp.Expr, fraction: exp.Expr) -> exp.Expr:
    this, expression = (part.copy().transform(rewritten) for part in (argument, fraction))
    return exp.PercentileCont(this=this, expression=expression)


def _number(text: str) -> exp.Expr:
    return exp.cast(exp.Literal.string(text), "BIGINT" if text.lstrip("-").isdecimal() else "DOUBLE")
