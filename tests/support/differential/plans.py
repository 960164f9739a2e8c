"""Random plans that inference accepts: every operator, nested, with nodes that are read more than once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.support.differential.columns import INT, TIMESTAMP, ColumnShape, shapes
from tests.support.differential.expressions import AggregateWriter, ExpressionWriter
from tests.support.differential.scripts import StreamScript, Times
from tests.support.differential.windows import random_session, random_window

from mavstream_protocol.quantities import format_duration

Nodes = dict[str, dict[str, Any]]
WINDOW_COLUMNS = ("window_start", "window_end")


@dataclass(frozen=True, slots=True)
class Made:
    """A possible input: a node or an output of a split."""

    ref: str
    columns: tuple[ColumnShape, ...]
    ordered: bool

    @property
    def exact(self) -> bool:
        """Whether whole rows may be compared."""
        return all(column.exact for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(column.name for column in self.columns)


class PlanWriter:
    """Grows a graph of nodes from the sources; each operator reads what was made before, the newest first."""

    def __init__(self, random: Random, scripts: Sequence[StreamScript], times: Times) -> None:
        self._random = random
        self._times = times
        self.nodes: Nodes = {}
        self._pool: list[Made] = []
        for script in scripts:
            for _ in range(random.choice((1, 1, 2))):
                name = self._add({"op": "source", "stream": script.name})
                self._pool.append(Made(name, shapes(script.fields), True))
        random.shuffle(self._pool)

    def write(self, operators: int) -> tuple[Nodes, str]:
        """Add a number of operators; returns the nodes that the last one needs, and its name."""
        kinds: list[tuple[Callable[[Made], Made], int]] = [
            (self._select, 3), (self._project, 3), (self._split, 2), (self._union, 4),
            (self._except, 4), (self._distinct, 4), (self._aggregate, 7), (self._interval_join, 4),
            (self._window_join, 4),
        ]  # fmt: skip
        made = self._random.choice(self._pool)
        for _ in range(operators):
            below = made if self._random.random() < 0.75 else self._pick()
            make = self._random.choices([k for k, _ in kinds], [weight for _, weight in kinds])[0]
            made = make(below)
            self._pool.append(made)
        if made.ordered and operators > 1 and self._random.random() < 0.4:
            made = self._aggregate(made, tells_order=True)
        return reachable(self.nodes, made.ref), made.ref

    def _add(self, node: dict[str, Any]) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes[name] = node
        return name

    def _pick(self) -> Made:
        return self._random.choice(self._pool)

    def _scalars(self, made: Made) -> ExpressionWriter:
        return ExpressionWriter(self._random, {c.name: c for c in made.columns}, self._times.base)

    def _select(self, below: Made) -> Made:
        where = self._scalars(below).predicate()
        return replace(below, ref=self._add({"op": "select", "input": below.ref, "where": where}))

    def _project(self, below: Made) -> Made:
        writer = self._scalars(below)
        columns: dict[str, tuple[str, ColumnShape]] = {}
        for column in self._random.sample(below.columns, self._random.randint(1, len(below.columns))):
            if self._random.random() < 0.6:
                columns[column.name] = (column.name, column)
            else:
                name = f"p{len(columns)}"
                text, exact = writer.scalar(column.type)
                columns[name] = (text, ColumnShape(name, column.type, exact))
        return self._projected(below, columns.values())

    def _projected(self, below: Made, columns: Iterable[tuple[str, ColumnShape]]) -> Made:
        columns = list(columns)
        compute = {column.name: text for text, column in columns}
        name = self._add({"op": "project", "input": below.ref, "compute": compute})
        return Made(name, tuple(column for _, column in columns), below.ordered)

    def _split(self, below: Made) -> Made:
        writer = self._scalars(below)
        outputs = {f"o{number}": writer.predicate() for number in range(self._random.randint(1, 3))}
        name = self._add({"op": "split", "input": below.ref, "outputs": outputs})
        made = [replace(below, ref=f"{name}.{output}") for output in (*outputs, "else")]
        self._random.shuffle(made)
        self._pool += made[1:]
        return made[0]

    def _union(self, below: Made) -> Made:
        inputs = [below, *(self._like(below) for _ in range(self._random.choice((1, 1, 2))))]
        self._random.shuffle(inputs)
        columns = tuple(
            replace(c, exact=all(o.exact for i in inputs for o in i.columns if o.name == c.name))
            for c in inputs[0].columns
        )
        node: dict[str, Any] = {"op": "union", "inputs": [made.ref for made in inputs]}
        ordered = all(made.ordered for made in inputs) and self._random.random() < 0.6
        if ordered:
            node["order"] = "time"
        return Made(self._add(node), columns, ordered)

    def _like(self, model: Made) -> Made:
        """Return an input with the columns of another, perhaps in another order."""
        alike = [made for made in self._pool if made.ref != model.ref and _same_columns(made, model)]
        chance = self._random.random()
        if alike and chance < 0.4:
            return self._random.choice(alike)
        if chance < 0.05:
            return model
        if chance < 0.65:
            return self._select(model)
        return self._project_to(self._pick(), model.columns)

    def _project_to(self, below: Made, columns: Sequence[ColumnShape]) -> Made:
        writer = self._scalars(below)
        wanted = self._random.sample(columns, len(columns))
        made = []
        for column in wanted:
            same = [c for c in below.columns if c.name == column.name and c.type is column.type]
            text, exact = (
                (column.name, same[0].exact) if same else writer.scalar(column.type, 1, column.exact)
            )
            made.append((text, replace(column, exact=exact)))
        return self._projected(below, made)

    def _window(self, ordered: bool) -> tuple[dict[str, Any], bool]:
        by_rows = ordered and self._random.random() < 0.35
        return random_window(self._random, self._times, by_rows), by_rows

    def _except(self, below: Made) -> Made:
        left = self._exact(self._without_window(below))
        right = self._exact(self._like(left))
        window, by_rows = self._window(left.ordered and right.ordered)
        node = {"op": "except", "left": left.ref, "right": right.ref, "window": window}
        return Made(self._add(node), (*left.columns, *_window_columns(by_rows)), left.ordered)

    def _distinct(self, below: Made) -> Made:
        """Make rows distinct, mostly of few columns, so that some are equal."""
        below = self._exact(self._without_window(below))
        if self._random.random() < 0.7:
            kept = self._random.sample(below.columns, min(len(below.columns), self._random.choice((1, 1, 2))))
            below = self._projected(below, [(column.name, column) for column in kept])
        window, by_rows = self._window(below.ordered)
        name = self._add({"op": "distinct", "input": below.ref, "window": window})
        return Made(name, (*below.columns, *_window_columns(by_rows)), below.ordered)

    def _exact(self, made: Made) -> Made:
        """Return an input whose rows may be compared whole."""
        if made.exact:
            return made
        writer = self._scalars(made)
        columns = [
            (c.name, c) if c.exact else (writer.scalar(c.type, 1, True)[0], replace(c, exact=True))
            for c in made.columns
        ]
        return self._projected(made, columns)

    def _without_window(self, made: Made) -> Made:
        """Return an input without the columns that a windowed operator adds: they are renamed."""
        if not set(made.names) & set(WINDOW_COLUMNS):
            return made
        return self._renamed(made, WINDOW_COLUMNS)

    def _renamed(self, made: Made, taken: Iterable[str]) -> Made:
        used = {*made.names, *taken}
        columns = []
        for column in made.columns:
            name = column.name
            while name in taken or (name != column.name and name in used):
                name = f"{name}_b"
            used.add(name)
            columns.append((column.name, replace(column, name=name)))
        return self._projected(made, columns)

    def _aggregate(self, below: Made, tells_order: bool = False) -> Made:
        """Aggregate an input; one that depends on order is by rows and prefers `first` and `last`."""
        keys = [c for c in below.columns if c.exact and c.name not in WINDOW_COLUMNS]
        by = self._random.sample(keys, min(len(keys), self._random.choice((0, 0, 1, 1, 2))))
        writer = AggregateWriter(self._random, below.columns, self._times.base, below.ordered, tells_order)
        taken = {column.name for column in by}
        names = [name for name in (f"c{i}" for i in range(9)) if name not in taken]
        computed = [writer.column(names[i], by) for i in range(self._random.randint(1, 4))]
        window, by_rows = self._window(below.ordered)
        if self._random.random() < 0.3:
            window, by_rows = random_session(self._random, self._times), False
        if tells_order:
            window, by_rows = {"kind": "tumbling", "size": self._random.choice((1, 2, 3))}, True
        node: dict[str, Any] = {"op": "aggregate", "input": below.ref, "window": window}
        if by:
            node["by"] = [column.name for column in by]
        node["compute"] = {column.name: text for text, column in computed}
        columns = (*by, *(column for _, column in computed), *_window_columns(by_rows))
        return Made(self._add(node), columns, below.ordered or not by)

    def _interval_join(self, below: Made) -> Made:
        ticks = [self._random.choice((0, 0, 1, 3, 10, 30)) for _ in range(2)]
        before, after = (format_duration(number * self._times.tick) for number in ticks)
        within: Any = before if self._random.random() < 0.5 else {"before": before, "after": after}
        return self._join(below, self._partner(below), {"within": within}, ())

    def _window_join(self, below: Made) -> Made:
        right = self._partner(below)
        window, by_rows = self._window(below.ordered and right.ordered)
        return self._join(below, right, {"window": window}, _window_columns(by_rows))

    def _partner(self, below: Made) -> Made:
        return below if self._random.random() < 0.1 else self._pick()

    def _join(self, left: Made, right: Made, how: dict[str, Any], added: tuple[ColumnShape, ...]) -> Made:
        computes = self._random.random() < 0.7
        if not computes:
            left = self._without_window(left) if added else left
            right = self._renamed(right, {*left.names, *(c.name for c in added)})
        sides = {f"l.{c.name}": c for c in left.columns} | {f"r.{c.name}": c for c in right.columns}
        writer = ExpressionWriter(self._random, sides, self._times.base)
        pairs = [
            [a.name, b.name]
            for a in left.columns for b in right.columns
            if a.type is b.type and a.exact and b.exact
        ]  # fmt: skip
        alike = [pair for pair in pairs if pair[1].startswith(pair[0]) and pair[0] != "ts"]
        if alike and self._random.random() < 0.7:
            pairs = alike
        wanted = self._random.choice((0, 1, 1, 1, 2))
        node: dict[str, Any] = {"op": "join", "left": left.ref, "right": right.ref, **how}
        node["on"] = self._random.sample(pairs, min(len(pairs), wanted))
        if self._random.random() < 0.4:
            node["where"] = writer.predicate()
        ordered = left.ordered and right.ordered and self._random.random() < 0.6
        if ordered:
            node["order"] = "time"
        columns = (*left.columns, *right.columns)
        if computes:
            computed = [self._computed(writer, f"j{i}", sides) for i in range(self._random.randint(1, 4))]
            node["compute"] = {column.name: text for text, column in computed}
            columns = tuple(column for _, column in computed)
        return Made(self._add(node), (*columns, *added), ordered)

    def _computed(
        self, writer: ExpressionWriter, name: str, sides: dict[str, ColumnShape]
    ) -> tuple[str, ColumnShape]:
        ref, column = self._random.choice(list(sides.items()))
        if self._random.random() < 0.7:
            return ref, replace(column, name=name)
        text, exact = writer.scalar(column.type)
        return text, ColumnShape(name, column.type, exact)


def _window_columns(by_rows: bool) -> tuple[ColumnShape, ...]:
    return tuple(ColumnShape(name, INT if by_rows else TIMESTAMP) for name in WINDOW_COLUMNS)


def _same_columns(made: Made, model: Made) -> bool:
    return {c.name: c.type for c in made.columns} == {c.name: c.type for c in model.columns}


def reachable(nodes: Nodes, root: str) -> Nodes:
    """Return the nodes that a root needs; a plan has no others."""
    found: set[str] = set()
    waiting = [root]
    while waiting:
        name = waiting.pop().partition(".")[0]
        if name in found:
            continue
        found.add(name)
        waiting += inputs_of(nodes[name])
    return {name: node for name, node in nodes.items() if name in found}


def inputs_of(node: dict[str, Any]) -> list[str]:
    """Return the inputs of a node."""
    return [*node.get("inputs", ()), *(node[key] for key in ("input", "left", "right") if key in node)]
