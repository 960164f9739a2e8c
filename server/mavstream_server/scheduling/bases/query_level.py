"""What a query is worth: the priority of its class, divided by what a tuple costs each of its queries."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from mavstream_server.scheduling.bases.multicore import Member, MulticorePolicy, UnitT
from mavstream_server.scheduling.policy import OptionsT
from mavstream_server.scheduling.view import OperatorKind, OperatorView, QueryView, Report, View

_LEAST_COST = 1.0  # nanoseconds: a query that is free would be left without any priority


def loads(operators: Sequence[OperatorView]) -> dict[int, float]:
    """Return the work that a tuple from every source makes at each operator, in ns, by the operator's number.

    Their sum is the expected cost per tuple of the query: what comes from several sources adds up. Readers
    outside the query, as of a shared operator, are not counted.
    """
    reach = {operator.number: 0.0 for operator in operators}
    served = any(operator.kind is OperatorKind.SOURCE for operator in operators)
    found = {}
    for operator in operators:
        figures = operator.statistics
        begins = operator.kind is OperatorKind.SOURCE if served else operator.leaf
        tuples = reach[operator.number] + begins
        found[operator.number] = tuples * figures.cost_per_tuple
        # A split hands each tuple to one of its readers, all others hand it to every reader.
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
    """Knows what units are worth by the dissertation's formula (6.1.2), up to its multiplier:

    Pr_class(i) * cost(i) / cost(class(i)), and for queries that share operators the sum of theirs.
    Worths are worked out anew for all only when as many slices were run as there are units, or when
    priorities have changed; a unit that comes in between is given what it is worth at once.
    """

    def __init__(self, view: View, options: OptionsT) -> None:
        super().__init__(view, options)
        self._loads: dict[str, _QueryLoad] = {}
        self._classes: dict[str, _ClassLoad] = {}
        self._slices = 0  # since the worths were looked at

    @abstractmethod
    def frequency(self, class_name: str) -> float:
        """Return what a class is worth."""

    def share(self, member: Member) -> float:
        """Return what a query, or one of its operators, is worth of its class."""
        load = self._loads[member.query.id]
        whole = len(member.operators) == len(load.work)
        work = load.cost if whole else sum(load.work[operator.number] for operator in member.operators)
        return self.frequency(load.class_load.name) * work / load.class_load.cost

    def priority(self, unit: UnitT) -> float:
        """Return what a unit is worth: what its members are."""
        return sum(self.share(member) for member in unit.members)

    def measure(self, query: QueryView) -> None:
        """Take over a query's figures of now."""
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
        """Whether as many slices were run as there are units: then looking at all of them is paid for."""
        return self._slices >= len(self._units)

    def admit(self, query: QueryView) -> None:
        """Form units of the query, and work out what they are worth."""
        class_load = self._classes.setdefault(query.class_name, _ClassLoad(query.class_name))
        class_load.queries += 1
        self._loads[query.id] = _QueryLoad(class_load)
        self.measure(query)
        super().admit(query)

    def retire(self, query: QueryView) -> None:
        """Dissolve the query's units, and leave its share to the others of its class."""
        super().retire(query)
        load = self._loads.pop(query.id)
        load.class_load.cost -= load.cost
        load.class_load.queries -= 1
        if not load.class_load.queries:
            del self._classes[load.class_load.name]

    def ended(self, unit: UnitT, report: Report) -> None:
        """Count the slice."""
        self._slices += 1
