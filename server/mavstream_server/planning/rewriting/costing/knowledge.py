"""Knowledge: what was measured, kept by what operators do, so that it holds in another plan, too."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from mavstream_protocol.expressions.typed import Expression
from mavstream_server.planning.rewriting.costing.estimates import KEYS_EQUAL, selectivity

Equality = frozenset[Expression]
_LOWEST = 1e-6
_FACTORS = (0.01, 100.0)
_MOST_FACTORS = 101  # of a kind, the newest
_MOST_CONDITIONS = 20_000


class Knowledge:
    """Selectivities of predicates and keys, and by which factor operators cost more than estimated.

    Predicates are known in terms of streams (see `lineage`), other operators by name, and by kind where
    that name is new.
    """

    def __init__(self) -> None:
        self._predicates: dict[Expression, float] = {}
        self._predicate_factors: dict[Expression, float] = {}
        self._equalities: dict[Equality, float] = {}
        self._factors: dict[str, float] = {}
        self._kinds: dict[str, list[float]] = {}
        self._gains: dict[str, float] = {}

    # Selectivity

    def selectivity(self, origins: Sequence[Expression]) -> float:
        """Return the share of rows for which a predicate is true."""
        known = [self._predicates[origin] for origin in origins if origin in self._predicates]
        return sum(known) / len(known) if known else selectivity(origins[0])

    def learn_selectivity(self, parts: Sequence[Sequence[Expression]], measured: float) -> None:
        """Divide what was measured of a conjunction among its parts, as the estimates are to each other."""
        logs = [-math.log(min(max(selectivity(origins[0]), 0.01), 0.99)) for origins in parts]
        whole = -math.log(min(max(measured, _LOWEST), 1.0))
        for origins, log in zip(parts, logs, strict=True):
            share = math.exp(-whole * log / sum(logs))
            self._predicates.update(dict.fromkeys(origins, share))

    def equality(self, pair: Equality) -> float:
        """Return the share of pairs of rows that agree in two columns.

        Where these two were never compared, what was measured of either with another column says most.
        """
        if pair in self._equalities:
            return self._equalities[pair]
        near = [share for known, share in self._equalities.items() if known & pair]
        return min(near, default=KEYS_EQUAL)

    def learn_equalities(self, pairs: Sequence[Equality], factor: float) -> None:
        """Scale the estimates of a join's keys, all by the same, to what was measured."""
        learned = {pair: self.equality(pair) * factor ** (1 / len(pairs)) for pair in pairs}
        self._equalities.update(learned)

    def gain(self, name: str, otherwise: float) -> float:
        """Return rows out per row in of an operator that no rule changes."""
        return self._gains.get(name, otherwise)

    def learn_gain(self, name: str, gain: float) -> None:
        """Keep rows out per row in."""
        self._gains[name] = gain

    # Cost

    def predicate_factor(self, origins: Sequence[Expression]) -> float:
        """Return by how much a predicate costs more than estimated."""
        known = [self._predicate_factors[o] for o in origins if o in self._predicate_factors]
        return sum(known) / len(known) if known else self.kind_factor("select")

    def factor(self, name: str, kind: str) -> float:
        """Return by how much an operator costs more than estimated."""
        return self._factors.get(name) or self.kind_factor(kind)

    def kind_factor(self, kind: str) -> float:
        """Return the same for operators of a kind that were not measured themselves."""
        known = self._kinds.get(kind)
        return sum(known) / len(known) if known else 1.0

    def learn_factor(
        self, name: str, kind: str, factor: float, predicates: Iterable[Sequence[Expression]] = ()
    ) -> None:
        """Keep by how much an operator, and the predicates in it, cost more than estimated."""
        factor = min(max(factor, _FACTORS[0]), _FACTORS[1])
        self._kinds.setdefault(kind, []).append(factor)
        self.declare_factor(name, factor, predicates)

    def declare_factor(
        self, name: str, factor: float, predicates: Iterable[Sequence[Expression]] = ()
    ) -> None:
        """Keep the same for one operator and its predicates, where it says nothing about others."""
        self._factors[name] = factor
        for origins in predicates:
            self._predicate_factors.update(dict.fromkeys(origins, factor))


class DerivedKnowledge(Knowledge):
    """What one plan declares of its own operators, where nothing is known already; that stays as it is."""

    def __init__(self, known: Knowledge) -> None:
        super().__init__()
        self._known = known

    def selectivity(self, origins: Sequence[Expression]) -> float:
        """Return the share of rows for which a predicate is true."""
        declared = _is_new(origins, self._predicates, self._known._predicates)
        return super().selectivity(origins) if declared else self._known.selectivity(origins)

    def equality(self, pair: Equality) -> float:
        """Return the share of pairs of rows that agree in two columns."""
        declared = pair in self._equalities and pair not in self._known._equalities
        return self._equalities[pair] if declared else self._known.equality(pair)

    def predicate_factor(self, origins: Sequence[Expression]) -> float:
        """Return by how much a predicate costs more than estimated."""
        declared = _is_new(origins, self._predicate_factors, self._known._predicate_factors)
        return super().predicate_factor(origins) if declared else self._known.predicate_factor(origins)

    def kind_factor(self, kind: str) -> float:
        """Return by how much operators of a kind cost more than estimated."""
        return self._known.kind_factor(kind)


class PooledKnowledge(Knowledge):
    """What many queries taught, for plans that have nothing to do with them.

    Names of operators mean nothing from one query to the next; conditions on streams and kinds do.
    """

    def pool(self, other: Knowledge) -> None:
        """Take over what holds in any plan."""
        if len(self._predicates) > _MOST_CONDITIONS:
            for known in (self._predicates, self._predicate_factors, self._equalities):
                known.clear()
        self._predicates |= other._predicates
        self._predicate_factors |= other._predicate_factors
        self._equalities |= other._equalities
        for kind, factors in other._kinds.items():
            self._kinds[kind] = (self._kinds.get(kind, []) + factors)[-_MOST_FACTORS:]

    def kind_factor(self, kind: str) -> float:
        """Return the median: one slow query must not make all new ones look slow."""
        known = self._kinds.get(kind)
        return median(known) if known else 1.0


def _is_new(
    origins: Sequence[Expression], own: Mapping[Expression, float], known: Mapping[Expression, float]
) -> bool:
    """Whether something was declared of a predicate, and nothing is known of it."""
    return any(origin in own for origin in origins) and not any(origin in known for origin in origins)
