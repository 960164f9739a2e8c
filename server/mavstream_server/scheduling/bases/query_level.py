"""Base of query-level policies: the priority of a class, shared among its queries by their cost."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from mavstream_server.scheduling.bases.multicore import Member, MulticorePolicy, UnitT
from mavstream_server.scheduling.policy import OptionsT
from mavstream_server.scheduling.view import OperatorKind, OperatorView, QueryView, Report, View

_LEAST_COST = 1.0  # nanoseconds: a query without cost would get no priority at all


def loads(operators: Sequence[OperatorView]) -> dict[int, float]:
    """Return the expected work (ns) per operator, by operator number, for one tuple from every source.

    The sum is the expected cost per tuple of the query; contributions of several sources add up. Readers
    outside of the query, as those of a shared operator, are not counted.
    """
    reach = {operator.number: 0.0 for operator in operators}
    served = any(operator.kind is OperatorKind.SOURCE for operator in operators)
    found = {}
    for operator in operators:
        figures = operator.statistics
        begins = operator.kind is OperatorKind.SOURCE if served else operator.leaf
        tuples = reach[operator.number] + begins
        found[operator.number] = tuples * figures.cost_per_tuple
        # A split passes each tuple to one of its readers, all other operators to every reader.
        share = 1 / len(operator.downstream) if operator.operator == "split" and operator.downstream else 1.0
        for reader in operator.downstream:
            if reader.number in reach:
                reach[reader.number] += tuples * figures.selectivity * share
    return found


class _ClassLoad:
    __slots__ = ("cost", "name", "queries")

    def __init__(self, name: str) -> None:
        self.name = name
        self.cost = 0.0
        self.queries = 0


class _QueryLoad:
    __slots__ = ("class_load", "cost", "work")

    def __init__(self, class_load: _ClassLoad) -> None:
        self.class_load = class_load
        self.work: dict[int, float] = {}  # by operator number
        self.cost = 0.0


class QueryLevelPolicy(MulticorePolicy[OptionsT, UnitT]):
    """Computes priorities of units by the dissertation's formula (6.1.2), without its multiplier.

    Pr_class(i) * cost(i) / cost(class(i)); for queries that share operators, the sum of their priorities.
    All priorities are recomputed only after as many slices as there are units, or when class priorities
    have changed; a unit that is added in between gets its priority at once.
    """

    def __init__(self, view: View, options: OptionsT) -> None:
        super().__init__(view, options)
        self._loads: dict[str, _QueryLoad] = {}
        self._classes: dict[str, _ClassLoad] = {}
        self._slices = 0  # since priorities were last recomputed

    @abstractmethod
    def frequency(self, class_name: str) -> float:
        """Return the priority of a class in the formula, corrected or not."""

    def share(self, member: Member) -> float:
        """Return the share of its class's priority of a query, or of one of its operators."""
        load = self._loads[member.query.id]
        whole = len(member.operators) == len(load.work)
        work = load.cost if whole else sum(load.work[operator.number] for operator in member.operators)
        return self.frequency(load.class_load.name) * work / load.class_load.cost

    def priority(self, unit: UnitT) -> float:
        """Return the priority of a unit: the sum over its members."""
        return sum(self.share(member) for member in unit.members)

    def measure(self, query: QueryView) -> None:
        """Recompute a query's work from its current statistics."""
        load = self._loads[query.id]
        load.work = loads(query.operators)
        cost = max(sum(load.work.values()), _LEAST_COST)
        load.class_load.cost += cost - load.cost
        load.cost = cost

    @property
    def classes(self) -> list[str]:
        """The classes that have queries."""
        return list(self._classes)

    @property
    def round_full(self) -> bool:
        """Whether as many slices were run as there are units, which amortises an update of all of them."""
        return self._slices >= len(self._units)

    def admit(self, query: QueryView) -> None:
        """Form units of the query and compute their priorities."""
        class_load = self._classes.setdefault(query.class_name, _ClassLoad(query.class_name))
        class_load.queries += 1
        self._loads[query.id] = _QueryLoad(class_load)
        self.measure(query)
        super().admit(query)

    def retire(self, query: QueryView) -> None:
        """Dissolve the query's units; its share goes to the other queries of its class."""
        super().retire(query)
        load = self._loads.pop(query.id)
        load.class_load.cost -= load.cost
        load.class_load.queries -= 1
        if not load.class_load.queries:
            del self._classes[load.class_load.name]

    def ended(self, unit: UnitT, report: Report) -> None:
        """Count the slice."""
        self._slices += 1
