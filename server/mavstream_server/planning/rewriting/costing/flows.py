"""Flows: the rows per second that leave a node, what it costs to make them, and what they depend on."""

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
    """What a node does in a second."""

    out: Mapping[str | None, float]
    """Rows, by output; a node that is no split has the output None."""
    work: float
    """Nanoseconds, by the estimates alone."""
    held: float = 0.0
    """Rows that it keeps, of all inputs."""


@dataclass(frozen=True)
class Flows:
    """What flows of the nodes of one plan depend on, by what is known and by estimates."""

    lineage: Lineage
    knowledge: Knowledge

    def parts(self, node: str, predicate: Expression | None) -> list[tuple[Expression, ...]]:
        """Return the parts of a predicate, each in terms of streams."""
        if predicate is None:
            return []
        return [self.lineage.origins(node, part) for part in conjuncts(predicate)]

    def share(self, node: str, predicate: Expression | None) -> float:
        """Return the share of rows or pairs for which a predicate is true."""
        return math.prod(self.knowledge.selectivity(origins) for origins in self.parts(node, predicate))

    def equalities(self, join: TypedJoin) -> list[Equality]:
        """Return the keys of a join in terms of streams."""
        left, right = join.inputs
        return [frozenset((self.lineage.column(left, a), self.lineage.column(right, b))) for a, b in join.on]
