"""Expansion of families of queries in a workload file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NoReturn

from mavstream_server.simulation.scenario import (
    MICROSECOND,
    READING,
    CostKind,
    OperatorSpec,
    QuerySpec,
    answers_of,
    read_query,
)
from mavstream_server.simulation.workload.draws import draw_value
from mavstream_server.simulation.workload.errors import InvalidWorkload
from mavstream_server.simulation.workload.model import Workload
from mavstream_server.simulation.workload.query_model import Costs, OperatorPart, QueryPart
from mavstream_server.simulation.workload.trees import tree

OUTPUT = "output"
_NOTHING = Costs()


class Families:
    """Expands the queries of a workload; each member of a family has its own values and streams.

    Drawn values depend on the shape and the index in the family, not on the class, so classes with the same
    families have the same queries, as in workload A of the CQC paper.
    """

    def __init__(self, workload: Workload, sizes: Mapping[str, float]) -> None:
        """`sizes` are the tuple sizes of streams in bytes, by stream name."""
        self._workload = workload
        self._sizes = sizes
        self._answers: dict[str, float] = {}
        """Sizes of the answers of the queries so far, by the name under which they are read."""

    def queries(self) -> Iterator[QuerySpec]:
        """Return all queries."""
        for at, part in enumerate(self._workload.queries):
            for index in range(part.count):
                for replica in range(part.replicas):
                    query = self._query(part, at, index, replica)
                    self._answers[answers_of(query.id)] = query.operators[-1].size
                    yield query

    def _query(self, part: QueryPart, at: int, index: int, replica: int) -> QuerySpec:
        id_ = part.id or f"{part.class_}.{part.shape or ('tree' if part.tree else f'query{at}')}"
        if part.count > 1 or part.shape is not None:
            id_ += str(index)
        if part.replicas > 1:
            id_ += f".{replica}"
        target = None if part.latency_us is None else int(part.latency_us * MICROSECOND)
        if part.tree is not None:
            setup = self._workload.overheads.setup_us
            return QuerySpec(id_, part.class_, tree(part.tree, id_, self._workload.seed, setup), target)
        return QuerySpec(id_, part.class_, self._operators(part, at, index, id_), target)

    def _operators(self, part: QueryPart, at: int, index: int, id_: str) -> tuple[OperatorSpec, ...]:
        shapes, path = self._workload.shapes, f"queries/{at}"
        if part.shape is not None and part.shape not in shapes:
            known = ", ".join(shapes) or "none"
            self._refuse(f"{path}/shape", f"unknown shape {part.shape!r}; known are: {known}")
        parts = part.operators or shapes[part.shape or ""]
        path = f"{path}/operators" if part.operators else f"shapes/{part.shape}"
        made: dict[str, OperatorSpec] = {}
        for name, operator in {**parts, **self._output(parts, path)}.items():
            for one in operator.reads:
                if one in parts and one not in made:
                    self._refuse(f"{path}/{name}", f"reads {one!r}, which must come before it: bottom-up")
            inputs = tuple(one if one in made else _stream(part, index, one) for one in operator.reads)
            for one in inputs:
                self._check_answers(one, operator, f"{path}/{name}")
            size = max(made[one].size if one in made else self._size(one) for one in inputs)
            drawing = f"{part.shape or id_}/{name}"
            made[name] = self._spec(name, operator, inputs, size, drawing, index)
        return tuple(made.values())

    def _check_answers(self, name: str, operator: OperatorPart, path: str) -> None:
        id_ = read_query(name)
        if id_ is None:
            return
        if name not in self._answers:
            self._refuse(path, f"reads the answers of query {id_!r}, which must come before it: bottom-up")
        if operator.kind != READING:
            self._refuse(
                path, f"expected an operator of kind {READING!r} to read a query, got {operator.kind!r}"
            )

    def _size(self, name: str) -> float:
        return self._sizes[name] if read_query(name) is None else self._answers[name]

    def _output(self, parts: Mapping[str, OperatorPart], path: str) -> dict[str, OperatorPart]:
        """Return the output to add at the top, unless there is one."""
        if any(part.kind == OUTPUT for part in parts.values()):
            return {}
        read = {name for part in parts.values() for name in part.reads}
        roots = [name for name in parts if name not in read]
        if len(roots) != 1:
            self._refuse(path, f"expected one operator that no other reads, got {len(roots)}: {roots}")
        return {OUTPUT: OperatorPart(kind=OUTPUT, input=roots[0])}

    def _spec(
        self, name: str, part: OperatorPart, inputs: tuple[str, ...], size: float, drawing: str, index: int
    ) -> OperatorSpec:
        kind, workload = self._workload.operators.get(part.kind, _NOTHING), self._workload

        def number(field: str, default: float) -> float:
            own, of_kind = getattr(part, field), getattr(kind, field)
            value = of_kind if own is None else own
            return default if value is None else draw_value(value, workload.seed, f"{drawing}/{field}", index)

        window = number("window_us", -1.0)
        return OperatorSpec(
            name,
            part.kind,
            inputs,
            cost=number("cost_us", 0.0) * MICROSECOND,
            setup=number("setup_us", workload.overheads.setup_us) * MICROSECOND,
            per_output=number("per_output_us", 0.0) * MICROSECOND,
            selectivity=1.0 if part.kind == OUTPUT else number("selectivity", 1.0),
            random=(part.selection or kind.selection or "random") == "random",
            size=number("size", size),
            varies=part.varies or kind.varies or CostKind.CONSTANT,
            synchronised=bool(kind.synchronised if part.synchronised is None else part.synchronised),
            window=None if window < 0 else window * MICROSECOND,
        )

    def _refuse(self, path: str, detail: str) -> NoReturn:
        raise InvalidWorkload.at(self._workload.name, path, detail)


def _stream(part: QueryPart, index: int, name: str) -> str:
    """Return the stream of an input for a member of a family; a single query names its streams itself."""
    if (part.shape is None and part.count == 1) or read_query(name) is not None:
        return name
    return f"{part.class_}.{part.id or part.shape or 'query'}{index % (part.streams or part.count)}.{name}"
