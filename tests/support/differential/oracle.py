"""The oracle: a plan as DuckDB SQL over tables that hold the streams, one table per node.

Every table has the node's columns and three hidden ones: `_pos`, `_time` and `_wm` (see `window_sql`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp, parse_one
from tests.support.differential.cases import Case, candidates
from tests.support.differential.hidden import hidden_columns
from tests.support.differential.scripts import Row, StreamScript
from tests.support.differential.window_sql import FLOOR_DIVISION, HIDDEN, bounds, in_sessions, windowed
from tests.support.oracle.duckdb_sql import connect, to_duckdb

from mavstream_protocol.plans import plan as kinds
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.plans.windows import RowWindow, SessionWindow, TimeWindow
from mavstream_protocol.schema import FieldType, Schema

MOST_ROWS = 3000
"""Larger intermediate results test nothing new and take long."""
SQL_TYPES = {
    FieldType.INT: "BIGINT",
    FieldType.FLOAT: "DOUBLE",
    FieldType.BOOL: "BOOLEAN",
    FieldType.STRING: "VARCHAR",
    FieldType.TIMESTAMP: "TIMESTAMP",
}
_ARROW_TYPES = {
    FieldType.INT: pa.int64(),
    FieldType.FLOAT: pa.float64(),
    FieldType.BOOL: pa.bool_(),
    FieldType.STRING: pa.string(),
    FieldType.TIMESTAMP: pa.timestamp("us"),
}
_EMPTY_EVERY = 10
_LATE = "coalesce(_time < _wm, FALSE)"


class Unanswerable(Exception):
    """A case that the oracle cannot answer: too many rows, or a sum that overflows."""


class Oracle:
    """Answers plans in a new database."""

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        self._most_rows = most_rows
        self._database = connect()
        self._database.execute(FLOOR_DIVISION)

    def answer(self, case: Case) -> list[Row]:
        """Return the rows of a case's root; raises Unanswerable."""
        self._database.execute("BEGIN")
        try:
            return _Translation(self._database, case, self._most_rows).answer()
        except (duckdb.OutOfRangeException, duckdb.ConversionException) as error:
            raise Unanswerable(str(error)) from error
        finally:
            self._database.execute("ROLLBACK")


def answered_case(oracle: Oracle, seed: int) -> tuple[Case, list[Row]]:
    """Return the case of a seed and its answer, which is empty for a few seeds only."""
    for case in candidates(seed):
        try:
            answer = oracle.answer(case)
        except Unanswerable:
            continue
        if answer or seed % _EMPTY_EVERY == 0:
            return case, answer
    raise AssertionError("candidates never end")


class _Translation:
    """The tables of one case."""

    def __init__(self, database: duckdb.DuckDBPyConnection, case: Case, most_rows: int) -> None:
        self._database = database
        self._most_rows = most_rows
        self._case = case
        self._plan = Plan.parse({"root": case.root, "nodes": case.nodes})
        self._schemas = {name: node.schema for name, node in case.typed().nodes.items()}
        self._writers: dict[type, Callable[[Any, str], str]] = {
            kinds.SourceNode: lambda node, _: f"SELECT * FROM {node.stream}",
            kinds.SelectNode: lambda node, _: f"SELECT * FROM {_table(node.input)} WHERE {_sql(node.where)}",
            kinds.ProjectNode: self._project,
            kinds.UnionNode: self._union,
            kinds.AggregateNode: self._aggregate,
            kinds.ExceptNode: self._except,
            kinds.DistinctNode: self._distinct,
            kinds.JoinNode: self._join,
        }

    def answer(self) -> list[Row]:
        for script in self._case.scripts:
            self._stream(script)
        for name in self._schemas:
            node = self._plan.nodes[name]
            if isinstance(node, kinds.SplitNode):
                self._split(name, node)
            else:
                self._create(_table(name), self._writers[type(node)](node, name))
        schema = self._schemas[self._plan.root.partition(".")[0]]
        columns = ", ".join(
            f'epoch_us("{f.name}")' if f.type is FieldType.TIMESTAMP else f'"{f.name}"' for f in schema
        )
        return self._database.execute(f"SELECT {columns} FROM {_table(self._plan.root)}").fetchall()

    def _create(self, table: str, query: str) -> None:
        self._database.execute(f"CREATE TEMP TABLE {table} AS {query}")
        ((count,),) = self._database.execute(f"SELECT count(*) FROM {table}").fetchall()
        if count > self._most_rows:
            raise Unanswerable(f"{table} has too many rows")

    def _stream(self, script: StreamScript) -> None:
        rows, hidden = script.rows, hidden_columns(script)
        columns = {
            f.name: pa.array([row[i] for row in rows], _ARROW_TYPES[f.type])
            for i, f in enumerate(script.fields)
        }
        for name, values in zip(("_pos", "_time", "_wm"), zip(*hidden, strict=True), strict=False):
            columns[name] = pa.array(values, pa.int64())
        if not hidden:
            columns |= {name: pa.array([], pa.int64()) for name in ("_pos", "_time", "_wm")}
        self._database.register("given", pa.table(columns))
        self._create(script.name, "SELECT * FROM given")
        self._database.unregister("given")

    def _project(self, node: kinds.ProjectNode, name: str) -> str:
        computed = self._computed(node.compute, self._schemas[name])
        return f"SELECT {', '.join(computed)}, {HIDDEN} FROM {_table(node.input)}"

    def _computed(self, compute: dict[str, str], schema: Schema) -> list[str]:
        types = {field.name: SQL_TYPES[field.type] for field in schema}
        return [f'CAST({_sql(text)} AS {types[name]}) AS "{name}"' for name, text in compute.items()]

    def _split(self, name: str, node: kinds.SplitNode) -> None:
        taken: list[str] = []
        for output, where in [*node.outputs.items(), (kinds.ELSE, "TRUE")]:
            matches = f"coalesce({_sql(where)}, FALSE)"
            condition = " AND ".join([*(f"NOT {other}" for other in taken), matches])
            self._create(_table(f"{name}.{output}"), f"SELECT * FROM {_table(node.input)} WHERE {condition}")
            taken.append(matches)

    def _union(self, node: kinds.UnionNode, name: str) -> str:
        columns = _names(self._schemas[name])
        parts = [
            f"SELECT {columns}, {HIDDEN}, {number} AS _input FROM {_table(text)}"
            for number, text in enumerate(node.inputs)
        ]
        union = " UNION ALL ".join(parts)
        if node.order is None:
            return f"SELECT {columns}, {HIDDEN} FROM ({union})"
        number = "row_number() OVER (ORDER BY _time, _input, _pos) - 1"
        return f"SELECT {columns}, {number} AS _pos, _time, {_NO_WATERMARK} FROM ({union}) WHERE NOT {_LATE}"

    def _rows(self, window: TimeWindow | RowWindow, *inputs: str) -> list[str]:
        counts = ", ".join(f"(SELECT count(*) FROM {_table(text)})" for text in inputs)
        return [windowed(_table(text), window, f"least({counts})") for text in inputs]

    def _aggregate(self, node: kinds.AggregateNode, name: str) -> str:
        by = [f'"{column}"' for column in node.by]
        if isinstance(node.window, SessionWindow):
            rows = in_sessions(_table(node.input), node.window, by)
        else:
            rows = self._rows(node.window, node.input)[0]
        computed = self._computed(node.compute, self._schemas[name])
        if node.scaled:  # nothing is shed, so errors are zero, or null beside null
            errors = [
                f'CASE WHEN {_sql(text)} IS NOT NULL THEN 0.0::DOUBLE END AS "{column}_error"'
                for column, text in node.compute.items()
            ]
            computed = [text for pair in zip(computed, errors, strict=True) for text in pair]
        columns = [*by, *computed, *bounds(node.window)]
        time = "max(_time)" if isinstance(node.window, RowWindow) else "_end - 1"
        number = "row_number() OVER (ORDER BY _k, min(_pos)) - 1"
        return (
            f"SELECT {', '.join(columns)}, {number} AS _pos, {time} AS _time, {_NO_WATERMARK} "
            f"FROM ({rows}) GROUP BY {', '.join(['_k', '_start', '_end', *by])}"
        )

    def _distinct(self, node: kinds.DistinctNode, name: str) -> str:
        rows = self._rows(node.window, node.input)[0]
        names = [f'"{field.name}"' for field in self._schemas[node.input.partition(".")[0]]]
        time = "_end - 1" if isinstance(node.window, TimeWindow) else "max(_time)"
        number = "row_number() OVER (ORDER BY _k, min(_pos)) - 1"
        return (
            f"SELECT {', '.join([*names, *bounds(node.window)])}, {number} AS _pos, {time} AS _time, "
            f"{_NO_WATERMARK} FROM ({rows}) GROUP BY {', '.join(['_k', '_start', '_end', *names])}"
        )

    def _except(self, node: kinds.ExceptNode, name: str) -> str:
        left, right = self._rows(node.window, node.left, node.right)
        names = [field.name for field in self._schemas[node.left.partition(".")[0]]]
        equal = " AND ".join(f'r."{column}" IS NOT DISTINCT FROM l."{column}"' for column in names)
        time = "l._end - 1"
        if isinstance(node.window, RowWindow):  # the latest row of the window, whichever side it is on
            both = f"SELECT _k, _time FROM ({left}) UNION ALL SELECT _k, _time FROM ({right})"
            time = f"(SELECT max(b._time) FROM ({both}) b WHERE b._k = l._k)"
        columns = [*(f'l."{column}"' for column in names), *bounds(node.window, "l.")]
        return (
            f"SELECT {', '.join(columns)}, row_number() OVER (ORDER BY l._k, l._pos) - 1 AS _pos, "
            f"{time} AS _time, {_NO_WATERMARK} FROM ({left}) l "
            f"WHERE NOT EXISTS (SELECT 1 FROM ({right}) r WHERE r._k = l._k AND {equal})"
        )

    def _join(self, node: kinds.JoinNode, name: str) -> str:
        conditions = [f'l."{left}" = r."{right}"' for left, right in node.on]
        order = ["greatest(l._time, r._time)", "l._pos", "r._pos"]
        added: Sequence[str] = ()
        if node.window is not None:
            left, right = self._rows(node.window, node.left, node.right)
            conditions.append("l._k = r._k")
            order.insert(1, "l._k")
            added = bounds(node.window, "l.")
        else:
            assert node.within is not None
            left, right = (f"SELECT * FROM {_table(t)} WHERE NOT {_LATE}" for t in (node.left, node.right))
            low, high = f"l._time - {node.within.before}", f"l._time + {node.within.after}"
            conditions.append(f"r._time BETWEEN {low} AND {high}")
        where = "TRUE" if node.where is None else _sql(node.where)
        columns = [*self._computed(node.compute or self._all_columns(node), self._schemas[name]), *added]
        return (
            f"SELECT {', '.join(columns)}, row_number() OVER (ORDER BY {', '.join(order)}) - 1 AS _pos, "
            f"greatest(l._time, r._time) AS _time, {_NO_WATERMARK} "
            f"FROM ({left}) l JOIN ({right}) r ON {' AND '.join(conditions)} WHERE {where}"
        )

    def _all_columns(self, node: kinds.JoinNode) -> dict[str, str]:
        sides = (("l", node.left), ("r", node.right))
        return {f.name: f"{s}.{f.name}" for s, text in sides for f in self._schemas[text.partition(".")[0]]}


_NO_WATERMARK = "CAST(NULL AS BIGINT) AS _wm"


def _table(reference: str) -> str:
    return f"node_{reference.replace('.', '_output_')}"


def _names(schema: Schema) -> str:
    return ", ".join(f'"{field.name}"' for field in schema)


@cache
def _sql(text: str) -> str:
    """Rewrite an expression for DuckDB; `first` and `last` go by position, nulls included."""
    tree = parse_one(to_duckdb(text), read="duckdb", into=exp.Condition)
    return f"({tree.transform(_by_position).sql(dialect='duckdb')})"


def _by_position(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.First | exp.Last):
        name = "first" if isinstance(node, exp.First) else "last"
        by_position = exp.Ordered(this=exp.column("_pos"), nulls_first=False)
        return exp.Anonymous(this=name, expressions=[exp.Order(this=node.this, expressions=[by_position])])
    return node
