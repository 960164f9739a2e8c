"""A scripted network: operators that are counters, to try a policy without data.

Chains of operators pass tuples on at a given selectivity; what a policy decides is done at once and told.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from mavstream_server.scheduling.policy import Policy
from mavstream_server.scheduling.registry import make_policy
from mavstream_server.scheduling.statistics import Statistics
from mavstream_server.scheduling.view import OperatorKind, Report, Slice


class ScriptedOperator:
    """An operator whose queue is a number; `looks` counts how often a policy read its state."""

    def __init__(
        self,
        number: int,
        query: ScriptedQuery,
        operator: str,
        kind: OperatorKind,
        leaf: bool,
        selectivity: float,
    ) -> None:
        self.number = number
        self.query = query
        self.operator = operator
        self.kind = kind
        self.leaf = leaf
        self.waiting = 0
        self.looks = 0
        self.oldest_arrival: int | None = None
        self.statistics = Statistics(selectivity=selectivity)

    @property
    def ready(self) -> bool:
        """Whether tuples wait."""
        self.looks += 1
        return self.waiting > 0

    @property
    def queued(self) -> int:
        """Tuples that wait."""
        self.looks += 1
        return self.waiting

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait."""
        return int(self.waiting * self.statistics.tuple_size)

    @property
    def oldest(self) -> int | None:
        """Arrival of the oldest tuple."""
        return self.oldest_arrival if self.waiting else None


class ScriptedQuery:
    """A chain of operators below an output."""

    def __init__(self, id_: str, class_name: str) -> None:
        self.id = id_
        self.class_name = class_name
        self.operators: list[ScriptedOperator] = []

    @property
    def paths(self) -> Sequence[Sequence[ScriptedOperator]]:
        """The chain."""
        return [self.operators]


class ScriptedNetwork:
    """A view for policies, and the driver that enacts their decisions on numbers."""

    def __init__(self, policy: str, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        self.queries: dict[str, ScriptedQuery] = {}
        self.priorities: dict[str, int] = {"default": 1}
        self.random = Random(seed)
        self.now = 0
        self.answers: dict[str, int] = {}
        self._numbers = 0
        self.policy: Policy[Any] = make_policy(policy, self, options)

    def add(self, id_: str, chain: Sequence[tuple[str, float]], class_name: str = "default") -> ScriptedQuery:
        """Admit a query: operators with their selectivity, leaf first; an output comes on top."""
        query = ScriptedQuery(id_, class_name)
        for place, (operator, selectivity) in enumerate((*chain, ("output", 1.0))):
            self._numbers += 1
            kind = OperatorKind.OUTPUT if operator == "output" else OperatorKind.OPERATIONAL
            query.operators.append(
                ScriptedOperator(self._numbers, query, operator, kind, place == 0, selectivity)
            )
        self.queries[id_] = query
        self.answers[id_] = 0
        self.policy.admit(query)
        return query

    def remove(self, id_: str) -> None:
        """Retire a query with all that waits in it."""
        query = self.queries.pop(id_)
        self.policy.retire(query)
        for operator in query.operators:
            operator.waiting = 0

    def arrive(self, id_: str, tuples: int) -> None:
        """Let tuples arrive at a query's leaf."""
        self._push(self.queries[id_].operators[0], tuples)

    def step(self) -> Slice | None:
        """Ask the policy once and do what it says."""
        self.now += 1
        slice_ = self.policy.next(0, self.now)
        if slice_ is None:
            return None
        consumed = produced = 0
        for operator in slice_.operators:
            assert isinstance(operator, ScriptedOperator)
            taken = operator.waiting if slice_.tuples is None else min(operator.waiting, slice_.tuples)
            operator.waiting -= taken
            consumed += taken
            produced += self._pass_on(operator, taken)
        self.policy.finished(slice_, Report(consumed, produced, consumed))
        return slice_

    def run(self) -> list[Slice]:
        """Step until the policy has nothing to run."""
        slices = []
        while (slice_ := self.step()) is not None:
            slices.append(slice_)
        return slices

    @property
    def waiting(self) -> int:
        """Tuples that wait anywhere."""
        return sum(operator.waiting for query in self.queries.values() for operator in query.operators)

    def _pass_on(self, operator: ScriptedOperator, taken: int) -> int:
        if operator.kind is OperatorKind.OUTPUT:
            self.answers[operator.query.id] += taken
            return taken
        produced = int(taken * operator.statistics.selectivity)
        if produced:
            operators = operator.query.operators
            self._push(operators[operators.index(operator) + 1], produced)
        return produced

    def _push(self, operator: ScriptedOperator, tuples: int) -> None:
        was_empty = not operator.waiting
        operator.waiting += tuples
        if was_empty:
            operator.oldest_arrival = self.now
            self.policy.arrived(operator, self.now)
