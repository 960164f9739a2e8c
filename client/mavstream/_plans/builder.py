"""The plan builder: every call returns a new flow, and `build` returns the plan.

stream("readings").where("temperature > 30").window("1s").by("location").agg(mean="avg(temperature)").build()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import orjson
from pydantic import BaseModel

from mavstream._convert.json_body import json_body
from mavstream._plans.explaining import as_html, explain
from mavstream._plans.graph import Node, plan_of
from mavstream_protocol import InvalidPlan, Plan
from mavstream_protocol.plans.plan import ELSE

Window: TypeAlias = str | int | Mapping[str, Any] | BaseModel
"""A duration (`"1s"`), a number of rows, or a complete window."""
Keys: TypeAlias = str | Sequence[str | Sequence[str]]
Within: TypeAlias = str | tuple[str, str] | Mapping[str, str]


@dataclass(frozen=True, slots=True, repr=False)
class Flow:
    """The output rows of a part of a plan. Flows are values: equal parts become one operator."""

    _node: Node
    _output: str | None = None

    def named(self, name: str) -> Flow:
        """Name the operator in the plan; by default it is named after its kind."""
        return replace(self, _node=replace(self._node, name=name))

    def hint(
        self, selectivity: float | None = None, cost: str | None = None, size: str | None = None
    ) -> Flow:
        """Declare what is expected of the operator until it is measured; the answer stays the same.

        Rows out per row in, time per row (`"250ns"`) and the size of a row that comes out (`"40B"`).
        """
        return replace(self, _node=_hinted(self._node, selectivity, cost, size))

    def where(self, predicate: str) -> Flow:
        """Keep the rows for which a predicate is true."""
        return self._then("select", input=self, where=predicate)

    def select(self, predicate: str) -> Flow:
        """Keep the rows for which a predicate is true; the same as `where`."""
        return self.where(predicate)

    def filter(self, predicate: str) -> Flow:
        """Keep the rows for which a predicate is true; the same as `where`."""
        return self.where(predicate)

    def project(self, compute: Mapping[str, str] | None = None, /, **named: str) -> Flow:
        """Compute new columns from each row; columns that are not computed are dropped."""
        return self._then("project", input=self, compute={**(compute or {}), **named})

    def compute(self, compute: Mapping[str, str] | None = None, /, **named: str) -> Flow:
        """Compute new columns from each row; the same as `project`."""
        return self.project(compute, **named)

    def split(self, outputs: Mapping[str, str] | None = None, /, **named: str) -> Split:
        """Send each row to the first output whose predicate is true, else to `otherwise`."""
        predicates = {**(outputs or {}), **named}
        return Split(self._then("split", input=self, outputs=predicates)._node, tuple(predicates))

    def union(self, *others: Flow, order: Literal["time"] | None = None) -> Flow:
        """Merge flows with the same columns; `order="time"` keeps the rows in the order of time."""
        return self._then("union", inputs=(self, *others), order=order)

    def except_(self, other: Flow, window: Window) -> Flow:
        """Output, when a window closes, its rows without an equal row in the other flow."""
        return self._then("except", left=self, right=other, window=_window(window))

    def distinct(self, window: Window) -> Flow:
        """Give, at the close of each window, each row that differs from those before it, once."""
        return self._then("distinct", input=self, window=_window(window))

    def join(
        self,
        other: Flow | Table,
        on: Keys = (),
        *,
        within: Within | None = None,
        window: Window | None = None,
        where: str | None = None,
        compute: Mapping[str, str] | None = None,
        order: Literal["time"] | None = None,
        how: Literal["inner", "left"] | None = None,
    ) -> Flow:
        """Pair rows with equal keys that are close in time (`within`) or in the same `window`.

        With a stored table, `table("rooms")`, neither is given: rows join the version that was current when
        they arrived, and `how="left"` keeps rows without a match. `where` and `compute` refer to `l.column`
        and `r.column`; without `compute` all columns are output.
        """
        return self._then(
            "join",
            left=self,
            right=other,
            on=_keys(on),
            within=_within(within),
            window=None if window is None else _window(window),
            where=where,
            compute=None if compute is None else dict(compute),
            order=order,
            how=how,
        )

    def window(
        self,
        size: Window,
        hop: str | int | None = None,
        *,
        begin: Any = None,
        until: Any = None,
        partial: bool = False,
    ) -> Windowed:
        """Group rows into windows by time (`"1s"`) or by number of rows (`100`); `agg` follows."""
        return Windowed(self, json_body(_window(size, hop, begin, until, partial)))

    def session(self, gap: str, *, begin: Any = None, until: Any = None, partial: bool = False) -> Windowed:
        """Group rows that are less than `gap` apart into sessions, by themselves for each group of `by`."""
        window = {"kind": "session", "gap": gap, "begin": begin, "until": until, "partial": partial or None}
        given = {key: value for key, value in window.items() if value is not None}
        return Windowed(self, json_body(given))

    def rows_window(
        self, size: int, hop: int | None = None, *, begin: int | None = None, until: int | None = None
    ) -> Windowed:
        """Group rows into windows of `size` rows."""
        return self.window(size, hop, begin=begin, until=until)

    def groupby(self, *fields: str) -> Grouped:
        """Group by fields; a window and `agg` follow: `groupby("room").window("10s").agg(...)`."""
        return Grouped(self, fields)

    def explain(self) -> str:
        """Return the plan as a tree of its operators; raises InvalidPlan."""
        return explain(self.build())

    def __repr__(self) -> str:
        try:
            return self.explain()
        except InvalidPlan as error:
            return f"Flow({self._node.op}: {error})"

    def _repr_html_(self) -> str:
        return as_html(repr(self))

    def build(self) -> Plan:
        """Return the plan whose results are the rows of this flow; raises InvalidPlan."""
        return plan_of(self._node, self._output)

    def _then(self, op: str, **parts: Any) -> Flow:
        return Flow(_node_of(op, parts))


@dataclass(frozen=True, slots=True)
class Windowed:
    """Rows in windows, possibly grouped by fields: `agg` outputs a row for each."""

    _flow: Flow
    _window: bytes
    _by: tuple[str, ...] = ()
    _scaled: bool = False

    def scaled(self) -> Windowed:
        """Scale counts, sums and averages up for rows that were shed, each with its `<name>_error`."""
        return replace(self, _scaled=True)

    def by(self, *fields: str) -> Windowed:
        """Group by the values of these fields."""
        return replace(self, _by=self._by + fields)

    def groupby(self, *fields: str) -> Windowed:
        """Group by the values of these fields; the same as `by`."""
        return self.by(*fields)

    def hop(self, hop: str | int) -> Windowed:
        """Set the distance between the starts of windows; they overlap if it is smaller than their size."""
        window = {**orjson.loads(self._window), "kind": "hopping", "hop": hop}
        return replace(self, _window=json_body(window))

    def agg(self, compute: Mapping[str, str] | None = None, /, **named: str) -> Flow:
        """Output aggregates when a window closes: `agg(n="count(*)")`."""
        columns = {**(compute or {}), **named}
        return self._flow._then(
            "aggregate",
            input=self._flow,
            by=self._by,
            window=orjson.loads(self._window),
            compute=columns,
            scaled=self._scaled or None,
        )


@dataclass(frozen=True, slots=True)
class Grouped:
    """Rows that are grouped by fields; a window follows."""

    _flow: Flow
    _by: tuple[str, ...]

    def window(
        self,
        size: Window,
        hop: str | int | None = None,
        *,
        begin: Any = None,
        until: Any = None,
        partial: bool = False,
    ) -> Windowed:
        """Group rows into windows; see `Flow.window`."""
        return self._flow.window(size, hop, begin=begin, until=until, partial=partial).by(*self._by)

    def session(self, gap: str, *, begin: Any = None, until: Any = None, partial: bool = False) -> Windowed:
        """Group rows that are less than `gap` apart; see `Flow.session`."""
        return self._flow.session(gap, begin=begin, until=until, partial=partial).by(*self._by)

    def rows_window(
        self, size: int, hop: int | None = None, *, begin: int | None = None, until: int | None = None
    ) -> Windowed:
        """Group rows into windows of `size` rows; see `Flow.rows_window`."""
        return self._flow.rows_window(size, hop, begin=begin, until=until).by(*self._by)


@dataclass(frozen=True, slots=True)
class Split:
    """The outputs of a split, by name."""

    _node: Node
    _outputs: tuple[str, ...]

    def __getitem__(self, output: str) -> Flow:
        if output not in (*self._outputs, ELSE):
            raise KeyError(f"the split has no output '{output}': it has {', '.join((*self._outputs, ELSE))}")
        return Flow(self._node, output)

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    @property
    def otherwise(self) -> Flow:
        """The rows that no predicate matched."""
        return self[ELSE]

    def hint(
        self, selectivity: float | None = None, cost: str | None = None, size: str | None = None
    ) -> Split:
        """Declare what is expected of the operator until it is measured; see `Flow.hint`."""
        return replace(self, _node=_hinted(self._node, selectivity, cost, size))

    def named(self, name: str) -> Split:
        """Name the operator in the plan."""
        return replace(self, _node=replace(self._node, name=name))


@dataclass(frozen=True, slots=True)
class Table:
    """A stored table, to be joined: `stream("readings").join(table("rooms"), on="room")`."""

    _node: Node
    _output: None = None

    def named(self, name: str) -> Table:
        """Name the table's node in the plan; by default it has the name of the table."""
        return replace(self, _node=replace(self._node, name=name))


def table(name: str) -> Table:
    """Return a stored table, for `join`."""
    return Table(_node_of("table", {"table": name}))


def stream(name: str) -> Flow:
    """Return the rows of a stream."""
    return Flow(_node_of("source", {"stream": name}))


def query(name: str) -> Flow:
    """Return the results of another query, to be read as the rows of a stream are."""
    return Flow(_node_of("source", {"query": name}))


def join(left: Flow, right: Flow | Table, on: Keys = (), **options: Any) -> Flow:
    """Pair the rows of two flows, or of a flow and a table; see `Flow.join`."""
    return left.join(right, on, **options)


def _node_of(op: str, parts: Mapping[str, Any]) -> Node:
    """Return a node: flows become its inputs, the other parameters that were given its parts."""
    inputs = tuple((key, value) for key, value in parts.items() if key in ("input", "left", "right"))
    several = tuple(("inputs", value) for value in parts.get("inputs", ()))
    rest = {
        key: value
        for key, value in parts.items()
        if value is not None and key not in ("input", "left", "right", "inputs")
    }
    return Node(
        op=op,
        inputs=tuple((key, flow._node, flow._output) for key, flow in (*inputs, *several)),
        parts=json_body(rest),
    )


def _hinted(node: Node, selectivity: float | None, cost: str | None, size: str | None) -> Node:
    given = {"selectivity": selectivity, "cost": cost, "size": size}
    parts = orjson.loads(node.parts)
    hints = {**parts.get("hints", {}), **{key: value for key, value in given.items() if value is not None}}
    return replace(node, parts=json_body({**parts, "hints": hints}))


def _window(
    size: Window, hop: str | int | None = None, begin: Any = None, until: Any = None, partial: bool = False
) -> dict[str, Any]:
    if isinstance(size, BaseModel):
        return size.model_dump(mode="json", exclude_none=True)
    if isinstance(size, Mapping):
        return dict(size)
    window = {"kind": "tumbling" if hop is None else "hopping", "size": size, "hop": hop}
    window |= {"begin": begin, "until": until, "partial": partial or None}
    return {key: value for key, value in window.items() if value is not None}


def _within(within: Within | None) -> Any:
    if isinstance(within, tuple):
        before, after = within
        return {"before": before, "after": after}
    return within


def _keys(on: Keys) -> list[list[str]]:
    names = [on] if isinstance(on, str) else on
    return [[name, name] if isinstance(name, str) else list(name) for name in names]
