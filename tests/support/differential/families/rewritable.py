"""Random plans with much to rewrite: selects above all operators, and three-way joins in one window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from tests.support.differential.cases import Case
from tests.support.differential.columns import FLOAT, INT, STRING, ColumnShape
from tests.support.differential.plans import Made, Nodes, PlanWriter, _window_columns, reachable
from tests.support.differential.scripts import random_script, random_times
from tests.support.differential.windows import random_window

from mavstream_protocol.quantities import format_duration
from mavstream_protocol.schema import FieldType


class RewritableWriter(PlanWriter):
    """Writes plans without regard to cost: rows are filtered late."""

    def __init__(self, *given: Any, fallible: bool) -> None:
        self._fallible = fallible
        super().__init__(*given)

    def write(self, operators: int) -> tuple[Nodes, str]:
        """Add a number of operators with selects above them, and perhaps an order-dependent one on top."""
        kinds: list[Callable[[Made], Made]] = [
            self._project, self._project, self._split, self._split, self._union, self._interval_join,
            self._window_join, self._window_join, self._three_way, self._three_way, self._distinct,
        ]  # fmt: skip
        made = self._random.choice(self._pool)
        if self._random.random() < 0.3:  # alone, since operators above would leave few triples
            made = self._three_way(made)
            return reachable(self.nodes, made.ref), made.ref
        for _ in range(operators):
            made = below = self._random.choice(kinds)(made)
            for _ in range(self._random.choice((0, 1, 1, 2))):
                made = self._select(made)
            if self._random.random() < 0.2:  # another node reads the input of the selects
                both = self._add({"op": "union", "inputs": [made.ref, below.ref]})
                made = replace(made, ref=both, ordered=False)
            if self._random.random() < 0.3:
                made = self._project(made)
            self._pool.append(made)
        if self._random.random() < 0.4:
            made = self._aggregate(made, tells_order=made.ordered and self._random.random() < 0.6)
            if self._random.random() < 0.3:
                made = self._select(made)
        return reachable(self.nodes, made.ref), made.ref

    def _select(self, below: Made) -> Made:
        parts = [self._likely(below) for _ in range(self._random.choice((1, 1, 2, 3)))]
        if self._fallible and self._random.random() < 0.4:
            parts.append(f"{self._failing(below, FLOAT)} IS NULL OR {self._failing(below, FLOAT)} > 0.5")
        where = " AND ".join(f"({part})" for part in self._random.sample(parts, len(parts)))
        return replace(below, ref=self._add({"op": "select", "input": below.ref, "where": where}))

    def _likely(self, below: Made) -> str:
        """Write a condition that keeps some rows: mostly one that few rows fail."""
        if self._random.random() < 0.3:
            return self._scalars(below).predicate(1)
        return self._random.choice([form for column in below.columns for form in _likely(column)])

    def _project(self, below: Made) -> Made:
        made = super()._project(below)
        if self._fallible and self._random.random() < 0.4:
            self.nodes[made.ref]["compute"]["fails"] = self._failing(below, FLOAT)
            made = replace(made, columns=(*made.columns, ColumnShape("fails", FLOAT)))
        return made

    def _join(self, left: Made, right: Made, how: dict[str, Any], added: tuple[ColumnShape, ...]) -> Made:
        """Join as usual, often with a condition on one side only."""
        made = super()._join(left, right, how, added)
        node = self.nodes[made.ref]
        if node["right"] == right.ref and self._random.random() < 0.6:  # else its columns were renamed
            column = self._random.choice(right.columns)
            part = self._random.choice(_likely(replace(column, name=f"r.{column.name}")))
            node["where"] = f"({node['where']}) AND ({part})" if "where" in node else part
        return made

    def _failing(self, below: Made, type_: Any) -> str:
        """Write an expression that fails in some rows."""
        forms = ["sqrt(-1.0)"]
        for column in below.columns:
            if column.exact and column.type in (INT, FLOAT):
                forms += [f"sqrt({column.name})", f"ln({column.name})", f"sqrt({column.name} - 1)"]
            elif column.type is STRING:
                forms.append(f"CAST({column.name} AS {type_})")
        return self._random.choice(forms[1:] or forms)

    def _three_way(self, below: Made) -> Made:
        """Join three inputs in one window, most often one without overlap."""
        window = random_window(self._random, self._times, False)
        chance, tick = self._random.random(), self._times.tick
        if chance < 0.6:
            window = {"kind": "tumbling", "size": format_duration(self._random.choice((10, 30, 100)) * tick)}
        elif chance < 0.8:
            window = {
                "kind": "hopping",
                "size": format_duration(30 * tick),
                "hop": format_duration(10 * tick),
            }
        first = self._plain_join(below, self._pick(), window)
        partner = self._pick()
        return self._plain_join(*self._random.sample((first, partner), 2), window)

    def _plain_join(self, left: Made, right: Made, window: dict[str, Any]) -> Made:
        sides = [(f"l.{c.name}", c) for c in left.columns] + [(f"r.{c.name}", c) for c in right.columns]
        keys = [
            [a.name, b.name]
            for a in left.columns for b in right.columns
            if a.type is b.type and a.exact and b.exact and a.name not in ("window_start", "window_end")
        ]  # fmt: skip
        alike = [pair for pair in keys if pair[0][0] == pair[1][0]]
        node: dict[str, Any] = {"op": "join", "left": left.ref, "right": right.ref, "window": window}
        node["on"] = self._random.sample(alike or keys, min(1, len(alike or keys)))
        chosen = self._random.sample(sides, min(len(sides), self._random.randint(2, 6)))
        kept = [
            (ref, column) for ref, column in sides if ref[2:] in {key for pair in node["on"] for key in pair}
        ]
        made: dict[str, tuple[str, ColumnShape]] = {}
        for ref, column in (*kept[:1], *chosen):
            name = f"{column.name[:1]}{len(made)}"
            made[name] = (ref, replace(column, name=name))
        node["compute"] = {name: ref for name, (ref, _) in made.items()}
        if self._random.random() < 0.4:
            ref, column = self._random.choice(sides)
            node["where"] = f"{ref} IS NOT NULL"
        added = _window_columns(False)
        return Made(self._add(node), (*(column for _, column in made.values()), *added), False)


def _likely(column: ColumnShape) -> tuple[str, ...]:
    name = column.name
    match column.type:
        case FieldType.INT:
            return f"{name} <> 1", f"{name} % 5 <> 1", f"{name} > -2 OR {name} IS NULL"
        case FieldType.FLOAT:
            return (f"{name} IS NOT NULL", f"coalesce({name}, 3.5) < 100.0") if column.exact else ("TRUE",)
        case FieldType.BOOL:
            return f"{name} IS NOT NULL", f"coalesce(NOT {name}, TRUE)"
        case FieldType.STRING:
            return f"{name} <> 'b'", f"concat({name}, 'a') LIKE '%a%'", f"coalesce({name}, 'b') >= ''"
    return f"{name} IS NOT NULL", f"{name} > TIMESTAMP '1969-01-01 00:00:00'"


def rewritable_case(seed: str) -> Case:
    """Make the case of a seed; every other one has expressions that fail in some rows."""
    random = Random(seed)
    times = random_times(random)
    scripts = tuple(random_script(random, f"s{i}", times) for i in range(random.choice((1, 2, 3))))
    writer = RewritableWriter(random, scripts, times, fallible=random.random() < 0.5)
    nodes, root = writer.write(random.choice((1, 1, 2, 2, 3)))
    used = {node["stream"] for node in nodes.values() if node["op"] == "source"}
    return Case(seed, tuple(s for s in scripts if s.name in used), nodes, root)
