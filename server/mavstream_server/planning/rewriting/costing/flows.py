"""Flows: the rows per second that leave a node, their cost, and the selectivities they depend on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.typed_plan import TypedJoin
from mavstream_server.planning.rewriting.costing.knowledge import Equality, Knowledge
from mavstream_server.planning.rewriting.costing.lineage import Lineage
from mavstream_server.planning.rewriting.expressions import conjuncts


class Flow(NamedTuple):
    """The output, the work and the state of a node, per second."""

    out: Mapping[str | None, float]
    """Rows per second, by output; nodes other than splits have the output None."""
    work: float
    """Nanoseconds of work per second, by the estimates alone."""
    held: float = 0.0
    """Rows that the node stores, of all inputs."""


@dataclass(frozen=True)
class Flows:
    """Selectivities of the predicates and keys of one plan, from knowledge and estimates."""

    lineage: Lineage
    knowledge: Knowledge

    def parts(self, node: str, predicate: Expression | None) -> list[tuple[Expression, ...]]:
        """Return the conjuncts of a predicate, each in terms of streams."""
        if predicate is None:
            return []
        return [self.lineage.origins(node, part) for part in conjuncts(predicate)]

    def share(self, node: str, predicate: Expression | None) -> float:
        """Return the share of rows or pairs that satisfy a predicate."""
        return math.prod(self.knowledge.selectivity(origins) for origins in self.parts(node, predicate))

    def equalities(self, join: TypedJoin) -> list[Equality]:
        """Return the keys of a join in terms of streams."""
        left, right = join.inputs
        return [frozenset((self.lineage.column(left, a), self.lineage.column(right, b))) for a, b in join.on]
