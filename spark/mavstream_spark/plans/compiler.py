"""The compiler: a checked plan to a Spark data frame with its answer.

Every frame has the columns of its node, `#time`, and `#position` where an operator above goes by order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mavstream_protocol.expressions.typed import AggregateCall, Call, Expression, Literal
from mavstream_protocol.plans.plan import ELSE, InputRef
from mavstream_protocol.plans.windows import RowWindow, SessionWindow, TimeWindow
from mavstream_protocol.schema import FieldType, Schema
from mavstream_protocol.typed_plan import (
    TypedAggregate,
    TypedExcept,
    TypedJoin,
    TypedNode,
    TypedPlan,
    TypedProject,
    TypedSelect,
    TypedSessions,
    TypedSource,
    TypedSplit,
    TypedTableJoin,
    TypedUnion,
)
from mavstream_spark.errors import UnsupportedPlan
from mavstream_spark.plans.aggregates import aggregated
from mavstream_spark.plans.expressions import with_columns
from mavstream_spark.plans.order import nodes_in_order
from mavstream_spark.plans.table_data import TableData
from mavstream_spark.plans.tables import kept_once, looked_up, numbered, place, table_frame
from mavstream_spark.plans.windows import (
    END,
    NEW,
    NUMBER,
    POSITION,
    START,
    TIME,
    bounds,
    in_sessions,
    windowed,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WHERE = "#where"


def compile_plan(
    plan: TypedPlan, streams: Mapping[str, DataFrame], tables: Mapping[str, TableData] | None = None
) -> DataFrame:
    """Return the answer of a plan, a row per row and no order.

    Each stream is a frame with its fields, `#time` and `#position`; raises UnsupportedPlan.
    """
    made = Compilation(plan, streams, tables or {})
    answer = made.frame(plan.root)
    return answer.selectExpr(*_quoted(plan.schema))


class Compilation:
    """The frames of one plan.

    A subclass may carry further hidden columns, and decide which windows are answered.
    """

    carried: tuple[str, ...] = ()
    """Hidden columns of streams that rows keep, besides `#time` and `#position`."""

    def __init__(
        self, plan: TypedPlan, streams: Mapping[str, DataFrame], tables: Mapping[str, TableData]
    ) -> None:
        self._plan = plan
        self._streams = streams
        self._tables = tables
        self._ordered = nodes_in_order(plan)
        self._frames: dict[InputRef, DataFrame] = {}

    def frame(self, reference: InputRef) -> DataFrame:
        """Return the rows of a node, or of one output of a split."""
        if reference not in self._frames:
            node = self._plan.nodes[reference.node].runs_as
            output = () if reference.output is None else (reference.output,)
            self._frames[reference] = FRAMES[type(node)](self, node, *output)
        return self._frames[reference]

    def made(self, node: TypedNode, new: str) -> list[str]:
        """Return SQL of the carried columns of rows that a node makes; `new` is true for answers to come."""
        return []

    def admitted(self, node: TypedNode, frame: DataFrame) -> DataFrame:
        """Return the rows in windows that are answered, each once per window."""
        return frame

    def in_time(self, node: TypedNode, frame: DataFrame) -> DataFrame:
        """Return the rows that can be in pairs of rows near in time."""
        return frame

    def closing(self, node: TypedNode, end: str) -> str:
        """Return SQL that is true for windows whose answers are to come; `end` is SQL of their end."""
        return "TRUE"

    def _hidden(self, node: TypedNode) -> list[str]:
        position = [POSITION] if node.name in self._ordered else []
        return [TIME, *position, *self.carried]

    def _source(self, node: TypedSource) -> DataFrame:
        if node.query is not None:
            raise UnsupportedPlan(
                f"nodes/{node.name}: reads the results of query '{node.stream}', and a dataset has streams: "
                "put the plan of that query in its place"
            )
        if node.stream not in self._streams:
            known = ", ".join(self._streams)
            raise UnsupportedPlan(f"nodes/{node.name}: stream '{node.stream}' is not there, only {known}")
        return self._streams[node.stream].selectExpr(*_quoted(node.schema), *_ticked(self._hidden(node)))

    def _select(self, node: TypedSelect) -> DataFrame:
        return self._filtered(self.frame(node.inputs[0]), node.where)

    def _filtered(self, frame: DataFrame, where: Expression) -> DataFrame:
        columns = frame.columns
        return with_columns(frame, {_WHERE: where}, columns).where(f"`{_WHERE}`").drop(_WHERE)

    def _project(self, node: TypedProject) -> DataFrame:
        return with_columns(self.frame(node.inputs[0]), dict(node.compute), self._hidden(node))

    def _split(self, node: TypedSplit, output: str) -> DataFrame:
        """Rows for which the output's predicate is true and none before it is."""
        conditions: list[Expression] = []
        for name, where in node.outputs:
            if name == output:
                conditions.append(where)
                break
            taken = Call("is_true", (where,), FieldType.BOOL, False)
            # A predicate that fails does not match: the row goes on to the next one.
            conditions.append(
                Call("coalesce", (taken, Literal(False, FieldType.BOOL)), FieldType.BOOL, False)
            )
        else:
            assert output == ELSE, f"node {node.name} has no output {output}"
        frame = self.frame(node.inputs[0])
        columns = frame.columns
        tests = {f"#test{number}": condition for number, condition in enumerate(conditions)}
        frame = with_columns(frame, tests, columns)
        names = list(tests)
        before = names if output == ELSE else names[:-1]
        parts = [f"NOT coalesce(`{name}`, FALSE)" for name in before]
        parts += [] if output == ELSE else [f"coalesce(`{names[-1]}`, FALSE)"]
        return frame.where(" AND ".join(parts)).drop(*names)

    def _union(self, node: TypedUnion) -> DataFrame:
        parts = []
        for number, reference in enumerate(node.inputs):
            hidden = _ticked([TIME, *self.carried])
            if node.name in self._ordered:
                place = (
                    f"concat(array(`{TIME}`, {number}L), `{POSITION}`)" if node.ordered else f"`{POSITION}`"
                )
                hidden.append(f"{place} AS `{POSITION}`")
            parts.append(self.frame(reference).selectExpr(*_quoted(node.schema), *hidden))
        union = parts[0]
        for part in parts[1:]:
            union = union.unionAll(part)
        return union

    def _aggregate(self, node: TypedAggregate | TypedSessions) -> DataFrame:
        frame = self.frame(node.inputs[0])
        calls: dict[AggregateCall, str] = {}
        for _, expression in node.compute:
            for call in expression.calls:
                calls.setdefault(call, f"#call{len(calls)}")
        arguments = {f"{name}.x": call.argument for call, name in calls.items() if call.argument is not None}
        hidden = (TIME, POSITION, *self.carried)
        kept = [name for name in frame.columns if name in node.by or name in hidden]
        frame = with_columns(frame, arguments, kept)
        if isinstance(node.window, SessionWindow):
            frame = in_sessions(frame, node.window, node.by)
        else:
            frame = windowed(frame, node.window, self._count(node))
        frame = self.admitted(node, frame)
        made = [
            f"{aggregated(call, None if call.argument is None else f'`{name}.x`')} AS `{name}`"
            for call, name in calls.items()
        ]
        by_time = not node.counts_rows
        made.append(f"{f'first(`{END}`) - 1' if by_time else f'max(`{TIME}`)'} AS `{TIME}`")
        if node.name in self._ordered:
            made.append(f"concat(array(first(`{NUMBER}`)), min(`{POSITION}`)) AS `{POSITION}`")
        made += self.made(node, self.closing(node, f"first(`{END}`)"))
        groups = [NUMBER, START, END, *node.by]
        frame = frame.groupBy(*_ticked(groups)).agg(*_expressions(made))
        frame = frame.selectExpr("*", *bounds(node.window))
        kept = [*node.by, "window_start", "window_end", *self._hidden(node)]
        for name, expression in node.compute:
            names = {f"#{place}": calls[call] for place, call in enumerate(expression.calls)}
            others = [column for column in frame.columns if column != name]
            frame = with_columns(frame, {name: expression.result}, others, names)
        return frame.selectExpr(*_quoted(node.schema), *_ticked(self._hidden(node)))

    def _count(self, node: TypedAggregate | TypedSessions | TypedExcept | TypedJoin) -> int | None:
        """Return how many rows of each input count in windows by rows: those of the shorter one."""
        if not isinstance(node.window, RowWindow):
            return None
        return min(self.frame(reference).count() for reference in node.inputs)

    def _except(self, node: TypedExcept) -> DataFrame:
        left, right = self._in_windows(node, node.window)
        names = [name for name in node.schema.names if name not in ("window_start", "window_end")]
        compared = right.selectExpr(
            f"`{NUMBER}` AS `r.{NUMBER}`", *(f"`{name}` AS `r.{name}`" for name in names)
        )
        equal = [f"`{NUMBER}` = `r.{NUMBER}`", *(f"`{name}` <=> `r.{name}`" for name in names)]
        found = left.join(compared, _expressions([" AND ".join(equal)])[0], "left_anti")
        if isinstance(node.window, RowWindow):
            # The time of a window by rows is that of its latest row, whichever side it is on.
            both = left.select(NUMBER, TIME).unionAll(right.select(NUMBER, TIME))
            latest = both.groupBy(f"`{NUMBER}`").agg(*_expressions([f"max(`{TIME}`) AS `#latest`"]))
            found = found.join(latest, NUMBER).withColumn(TIME, latest["`#latest`"])
            time = f"`{TIME}`"
        else:
            time = f"`{END}` - 1"
        hidden = [f"{time} AS `{TIME}`"]
        if node.name in self._ordered:
            hidden.append(f"concat(array(`{NUMBER}`), `{POSITION}`) AS `{POSITION}`")
        hidden += self.made(node, self.closing(node, f"`{END}`"))
        return found.selectExpr(*(f"`{name}`" for name in names), *bounds(node.window), *hidden)

    def _join(self, node: TypedJoin) -> DataFrame:
        if node.window is not None:
            pairs, extra = self._same_window(node, node.window), [f"l.{START}", f"l.{END}", f"l.{NUMBER}"]
        else:
            pairs, extra = self._near(node), []
        hidden = [f"greatest(`l.{TIME}`, `r.{TIME}`) AS `{TIME}`"]
        if node.name in self._ordered:
            number = [f"`l.{NUMBER}`"] if node.window is not None else []
            order = ", ".join([f"greatest(`l.{TIME}`, `r.{TIME}`)", *number])
            place = f"concat(array({order}), `l.{POSITION}`, `r.{POSITION}`)"
            hidden.append(f"{place} AS `{POSITION}`")
        hidden += self.made(node, self._new_pairs(node))
        pairs = pairs.selectExpr("*", *hidden)
        if node.where is not None:
            pairs = self._filtered(pairs, node.where)
        pairs = with_columns(pairs, dict(node.compute), [*extra, *self._hidden(node)])
        if node.window is not None:
            pairs = pairs.selectExpr("*", *bounds(node.window, "l."))
        return pairs.selectExpr(*_quoted(node.schema), *_ticked(self._hidden(node)))

    def _table_join(self, node: TypedTableJoin) -> DataFrame:
        if node.table not in self._tables:
            known = ", ".join(self._tables) or "none"
            raise UnsupportedPlan(
                f"nodes/{node.name}: table '{node.table}' is not there, only {known}: give its rows"
            )
        left = self.frame(node.inputs[0])
        right = table_frame(left.sparkSession, self._tables[node.table])
        if node.where is None:
            pairs = looked_up(left, right, node.on, node.outer)
        elif node.outer:
            pairs = looked_up(numbered(left), right, node.on, outer=True)
            pairs = kept_once(with_columns(pairs, {_WHERE: node.where}, pairs.columns), _WHERE)
        else:
            pairs = self._filtered(looked_up(left, right, node.on, outer=False), node.where)
        hidden = [f"`l.{TIME}` AS `{TIME}`"]
        hidden += [f"`l.{name}` AS `{name}`" for name in self.carried]
        if node.name in self._ordered:
            hidden.append(f"{place(POSITION)} AS `{POSITION}`")
        pairs = pairs.selectExpr("*", *hidden)
        return with_columns(pairs, dict(node.compute), self._hidden(node))

    def _same_window(self, node: TypedJoin, window: TimeWindow | RowWindow) -> DataFrame:
        left, right = self._in_windows(node, window)
        return _paired(left, right, [*node.on, (NUMBER, NUMBER)], [])

    def _in_windows(
        self, node: TypedExcept | TypedJoin, window: TimeWindow | RowWindow
    ) -> tuple[DataFrame, DataFrame]:
        rows = self._count(node)
        left, right = (self.admitted(node, windowed(self.frame(each), window, rows)) for each in node.inputs)
        return left, right

    def _new_pairs(self, node: TypedJoin) -> str:
        if node.window is not None:
            return self.closing(node, f"`l.{END}`")
        return " OR ".join(f"`{side}.{NEW}`" for side in "lr")

    def _near(self, node: TypedJoin) -> DataFrame:
        """Pairs near in time: by buckets as long as the reach, or all pairs of a key would be tried."""
        assert node.within is not None
        before, after = node.within.before, node.within.after
        width = max(before + after, 1)
        left, right = (self.in_time(node, self.frame(each)) for each in node.inputs)
        reach = (
            f"sequence({_bucket(f'`{TIME}` - {before}L', width)}, {_bucket(f'`{TIME}` + {after}L', width)})"
        )
        left = left.selectExpr("*", f"explode({reach}) AS `#bucket`")
        right = right.selectExpr("*", f"{_bucket(f'`{TIME}`', width)} AS `#bucket`")
        near = f"`r.{TIME}` BETWEEN `l.{TIME}` - {before}L AND `l.{TIME}` + {after}L"
        return _paired(left, right, [*node.on, ("#bucket", "#bucket")], [near])


FRAMES: Mapping[type[TypedNode], Callable[..., DataFrame]] = {
    TypedSource: Compilation._source,
    TypedSelect: Compilation._select,
    TypedProject: Compilation._project,
    TypedSplit: Compilation._split,
    TypedUnion: Compilation._union,
    TypedAggregate: Compilation._aggregate,
    TypedSessions: Compilation._aggregate,
    TypedExcept: Compilation._except,
    TypedJoin: Compilation._join,
    TypedTableJoin: Compilation._table_join,
}
"""What makes the frame of each node; for a split, of one of its outputs."""


def _paired(left: DataFrame, right: DataFrame, on: list[tuple[str, str]], others: list[str]) -> DataFrame:
    sides = [
        side.selectExpr(*(f"`{name}` AS `{letter}.{name}`" for name in side.columns))
        for letter, side in (("l", left), ("r", right))
    ]
    conditions = [*(f"`l.{a}` = `r.{b}`" for a, b in on), *others]
    return sides[0].join(sides[1], _expressions([" AND ".join(conditions)])[0])


def _bucket(time: str, width: int) -> str:
    return f"(({time} - pmod({time}, {width}L)) DIV {width}L)"


def _expressions(texts: list[str]) -> list[Any]:
    from pyspark.sql.functions import expr

    return [expr(text) for text in texts]


def _ticked(names: list[str]) -> list[str]:
    return [f"`{name}`" for name in names]


def _quoted(schema: Schema) -> list[str]:
    return _ticked(list(schema.names))
