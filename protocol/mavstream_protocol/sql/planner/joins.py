"""Joins while they are planned: both sides, the condition, and the columns that are taken of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mavstream_protocol.errors import InvalidSql
from mavstream_protocol.plans.windows import AggregateWindow
from mavstream_protocol.sql.planner.builder import PlanBuilder, Span
from mavstream_protocol.sql.planner.conditions import ConditionReader, JoinCondition, joined
from mavstream_protocol.sql.planner.outputs import Output, computation, spans_of
from mavstream_protocol.sql.planner.relations import Column, Names, Relation, all_columns, quoted
from mavstream_protocol.sql.tree import Join, QueryHints
from mavstream_protocol.sql.windows import WINDOW_COLUMNS, with_hints


@dataclass(frozen=True, slots=True)
class JoinDraft:
    """A join without its columns: those depend on what reads it."""

    left: Relation
    right: Relation
    condition: JoinCondition
    join: Join
    window: AggregateWindow | None
    where: tuple[str, ...] = ()
    """Conditions as the plan writes them."""

    @property
    def outer(self) -> bool:
        """Whether rows without a match are emitted, too."""
        return self.join.kind == "left"

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of both sides, as expressions of the join name them."""
        return side_columns(self.left, self.right)

    @property
    def visible(self) -> tuple[Column, ...]:
        """The columns of both sides, and those of the common window."""
        if self.window is None:
            return self.columns
        own = {(column.qualifier, column.name) for column in self.columns}
        added = [Column("", name, name, bound=True) for name in WINDOW_COLUMNS]
        for side in (self.left, self.right):
            qualifier = side.alias
            added += [
                Column(qualifier, n, n, bound=True) for n in WINDOW_COLUMNS if (qualifier, n) not in own
            ]
        return (*self.columns, *added)


class JoinPlanner:
    """Plans the joins of one SELECT."""

    def __init__(self, builder: PlanBuilder, hints: QueryHints) -> None:
        self._builder = builder
        self._source = builder.source
        self._hints = hints

    def draft(self, left: Relation, right: Relation, join: Join) -> JoinDraft:
        """Return the join of two relations; raises InvalidSql if they cannot be joined so."""
        if left.table:
            raise self._error("a stored table stands on the right of a join; swap the two sides", join)
        right = _merged(right, join)
        names = Names(self._source, side_columns(left, right))
        condition = self._condition(names, left, right, join)
        window = None if right.table else self._common_window(left, right, condition, join)
        if not right.table and condition.within is None and window is None:
            raise self._untimed(left, right, join)
        rest = tuple(names.rewritten(part) for part in condition.rest)
        return JoinDraft(left, right, condition, join, window, rest)

    def finish(
        self,
        draft: JoinDraft,
        compute: Mapping[str, str] | None,
        spans: Mapping[str, Span],
        name: str = "join",
    ) -> str:
        """Add the node of a join with its columns, or with all columns of both sides."""
        join, condition = draft.join, draft.condition
        values: dict[str, Any] = {"left": draft.left.node, "right": draft.right.node, "on": condition.keys}
        if condition.within is not None:
            values["within"] = {key: f"{value}us" for key, value in condition.within.items()}
        if self._hints.ordered and not draft.right.table:
            values["order"] = "time"
        if draft.outer:
            values["how"] = "left"
        if join.on is not None:
            spans = {"on": (join.on.start, join.on.end), **spans}
        where = joined(draft.where)
        return self._builder.add(
            "join",
            name,
            (join.start, join.end),
            spans,
            self._hints.statistics.get("join"),
            window=draft.window,
            where=where,
            compute=compute,
            **values,
        )

    def computed(self, draft: JoinDraft, outputs: list[Output], name: str) -> str:
        """Add a join that computes a list of columns."""
        names = Names(self._source, draft.columns)
        return self.finish(draft, computation(outputs, names), spans_of(outputs), name)

    def materialized(self, draft: JoinDraft) -> Relation:
        """Add a join with all columns of both sides, under distinct names; they keep their qualifiers."""
        taken: dict[str, Column] = {}
        for column in draft.columns:
            name, number = column.name, 1
            if name in taken or (name in WINDOW_COLUMNS and draft.window is not None):
                name = f"{column.qualifier}_{column.name}"
            while name in taken:
                number += 1
                name = f"{column.qualifier}_{column.name}_{number}"
            taken[name] = column
        node = self.finish(draft, {name: quoted(column.reference) for name, column in taken.items()}, {})
        columns = [replace(column, reference=name) for name, column in taken.items()]
        columns += [column for column in draft.visible if column.bound]
        return self.result(draft, node, tuple(columns), {name: c.reference for name, c in taken.items()})

    def result(
        self, draft: JoinDraft, node: str, columns: tuple[Column, ...], references: Mapping[str, str]
    ) -> Relation:
        """Return the relation of a finished join; `references` are the columns that it hands on."""
        if not draft.right.table:
            return Relation(node, columns, made_by_window=draft.window is not None)
        left = draft.left
        times = frozenset(
            name
            for name, reference in references.items()
            if reference[:2] == "l." and reference[2:] in left.times
        )
        return Relation(node, columns, times, window=left.window, session_keys=left.session_keys)

    def anti(self, left: Relation, right: Relation, join: Join, name: str) -> Relation:
        """Add the rows of the left side without an equal row on the right side, in a common window."""
        if {name.value.lower() for name in join.rows} != {left.alias.lower(), right.alias.lower()}:
            detail = f"compare both sides: ON {left.alias} IS NOT DISTINCT FROM {right.alias}"
            raise self._source.error("invalid_join", detail, join.rows[0].start, join.rows[-1].end)
        if left.window is None or left.window != right.window:
            raise self._error("cut both sides of an anti join into the same windows with TUMBLE or HOP", join)
        window = with_hints(left.window, self._hints, self._source)
        node = self._builder.add(
            "except",
            name,
            (join.start, join.end),
            {},
            self._hints.statistics.get("except"),
            left=left.node,
            right=right.node,
            window=window,
        )
        columns = (*left.columns, *all_columns(WINDOW_COLUMNS, left.alias))
        return Relation(node, columns, made_by_window=True)

    def _condition(self, names: Names, left: Relation, right: Relation, join: Join) -> JoinCondition:
        if join.on is not None:
            return ConditionReader(self._source, names, left, right).read(join.on)
        keys = []
        for name in join.using:
            found = [
                next((c.name for c in side.columns if c.name.lower() == name.value.lower()), None)
                for side in (left, right)
            ]
            if found[0] is None or found[1] is None:
                side = "left" if found[0] is None else "right"
                detail = f"the {side} side of the join has no column `{name.value}`"
                raise self._source.error("unknown_field", detail, name.start, name.end)
            keys.append((found[0], found[1]))
        return JoinCondition(tuple(keys), None, False, ())

    def _common_window(
        self, left: Relation, right: Relation, condition: JoinCondition, join: Join
    ) -> AggregateWindow | None:
        if left.window is None and right.window is None:
            return None
        if left.window != right.window:
            raise self._error("both sides of a join in windows must be cut into the same windows", join)
        if not condition.same_window:
            one, other = (side.alias for side in (left, right))
            raise self._error(
                "rows of different windows are not joined; add to ON: "
                + " AND ".join(f"{one}.{name} = {other}.{name}" for name in WINDOW_COLUMNS),
                join,
            )
        assert left.window is not None
        return with_hints(left.window, self._hints, self._source)

    def _untimed(self, left: Relation, right: Relation, join: Join) -> InvalidSql:
        times = []
        for side in (left, right):
            name = min(side.times, default="row_time")
            times.append(f"{side.alias}.{name}")
        return self._error(
            "a join of two streams must say how far apart their rows may be in time; add to ON for example "
            f"{times[0]} BETWEEN {times[1]} - INTERVAL '1' SECOND AND {times[1]} + INTERVAL '1' SECOND, "
            "or join in common windows",
            join,
        )

    def _error(self, detail: str, join: Join) -> InvalidSql:
        return self._source.error("invalid_join", detail, join.start, join.end)


def side_columns(left: Relation, right: Relation) -> tuple[Column, ...]:
    """Return the columns of both sides, as expressions of a join name them."""
    return tuple(
        replace(column, reference=f"{side}.{column.reference}")
        for side, relation in (("l", left), ("r", right))
        for column in relation.columns
    )


def _merged(relation: Relation, join: Join) -> Relation:
    """Return the right side of a join with the columns of USING marked."""
    using = {name.value.lower() for name in join.using}
    columns = tuple(replace(c, merged=c.merged or c.name.lower() in using) for c in relation.columns)
    return replace(relation, columns=columns)
