"""Knowledge: measured selectivities and costs, in a form that applies to equivalent plans, too."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from mavstream_protocol.expressions.typed import Expression
from mavstream_server.planning.rewriting.costing.estimates import KEYS_EQUAL, selectivity

Equality = frozenset[Expression]
_LOWEST_SELECTIVITY = 1e-6
_FACTOR_LIMITS = (0.01, 100.0)
_MAX_FACTORS = 101  # of a kind, the newest
_MAX_CONDITIONS = 20_000


class Knowledge:
    """Selectivities of predicates and keys, and factors by which operators cost more than estimated.

    Predicates are identified by their form in terms of streams (see `lineage`), other operators by name, and
    by kind if the name is new.
    """

    def __init__(self) -> None:
        self._predicates: dict[Expression, float] = {}
        self._predicate_factors: dict[Expression, float] = {}
        self._equalities: dict[Equality, float] = {}
        self._equalities_of: dict[Expression, dict[Equality, float]] = {}  # the same, by either column
        self._factors: dict[str, float] = {}
        self._kinds: dict[str, list[float]] = {}
        self._gains: dict[str, float] = {}

    # Selectivity

    def selectivity(self, origins: Sequence[Expression]) -> float:
        """Return the share of rows that satisfy a predicate."""
        known = [self._predicates[origin] for origin in origins if origin in self._predicates]
        return sum(known) / len(known) if known else selectivity(origins[0])

    def learn_selectivity(self, parts: Sequence[Sequence[Expression]], measured: float) -> None:
        """Distribute the measured selectivity of a conjunction over its parts, weighted by the estimates."""
        logs = [-math.log(min(max(selectivity(origins[0]), 0.01), 0.99)) for origins in parts]
        whole = -math.log(min(max(measured, _LOWEST_SELECTIVITY), 1.0))
        for origins, log in zip(parts, logs, strict=True):
            share = math.exp(-whole * log / sum(logs))
            self._predicates.update(dict.fromkeys(origins, share))

    def equality(self, pair: Equality) -> float:
        """Return the share of pairs of rows that are equal in two columns.

        If these two were never compared, the lowest measured share of either with another column is used.
        """
        if pair in self._equalities:
            return self._equalities[pair]
        near = (share for one in pair for share in self._equalities_of.get(one, {}).values())
        return min(near, default=KEYS_EQUAL)

    def learn_equalities(self, pairs: Sequence[Equality], factor: float) -> None:
        """Scale the shares of a join's keys so that their product changes by the measured factor."""
        learned = {pair: self.equality(pair) * factor ** (1 / len(pairs)) for pair in pairs}
        self._add_equalities(learned)

    def _add_equalities(self, shares: Mapping[Equality, float]) -> None:
        self._equalities.update(shares)
        for pair, share in shares.items():
            for one in pair:
                self._equalities_of.setdefault(one, {})[pair] = share

    def gain(self, name: str, otherwise: float) -> float:
        """Return the output rows per input row of an operator that no rule changes."""
        return self._gains.get(name, otherwise)

    def learn_gain(self, name: str, gain: float) -> None:
        """Store the output rows per input row of an operator."""
        self._gains[name] = gain

    # Cost

    def predicate_factor(self, origins: Sequence[Expression]) -> float:
        """Return the factor by which a predicate costs more than estimated."""
        known = [self._predicate_factors[o] for o in origins if o in self._predicate_factors]
        return sum(known) / len(known) if known else self.kind_factor("select")

    def factor(self, name: str, kind: str) -> float:
        """Return the factor by which an operator costs more than estimated."""
        return self._factors.get(name) or self.kind_factor(kind)

    def kind_factor(self, kind: str) -> float:
        """Return the average factor of a kind, for operators that were not measured themselves."""
        known = self._kinds.get(kind)
        return sum(known) / len(known) if known else 1.0

    def learn_factor(
        self, name: str, kind: str, factor: float, predicates: Iterable[Sequence[Expression]] = ()
    ) -> None:
        """Store the factor by which an operator and its predicates cost more than estimated."""
        factor = min(max(factor, _FACTOR_LIMITS[0]), _FACTOR_LIMITS[1])
        self._kinds.setdefault(kind, []).append(factor)
        self.declare_factor(name, factor, predicates)

    def declare_factor(
        self, name: str, factor: float, predicates: Iterable[Sequence[Expression]] = ()
    ) -> None:
        """Store the factor of one operator and its predicates, without affecting its kind."""
        self._factors[name] = factor
        for origins in predicates:
            self._predicate_factors.update(dict.fromkeys(origins, factor))


class DerivedKnowledge(Knowledge):
    """Adds what one plan declares about its operators to existing knowledge, which takes precedence."""

    def __init__(self, known: Knowledge) -> None:
        super().__init__()
        self._known = known

    def selectivity(self, origins: Sequence[Expression]) -> float:
        """Return the share of rows that satisfy a predicate."""
        declared = _is_new(origins, self._predicates, self._known._predicates)
        return super().selectivity(origins) if declared else self._known.selectivity(origins)

    def equality(self, pair: Equality) -> float:
        """Return the share of pairs of rows that are equal in two columns."""
        declared = pair in self._equalities and pair not in self._known._equalities
        return self._equalities[pair] if declared else self._known.equality(pair)

    def predicate_factor(self, origins: Sequence[Expression]) -> float:
        """Return the factor by which a predicate costs more than estimated."""
        declared = _is_new(origins, self._predicate_factors, self._known._predicate_factors)
        return super().predicate_factor(origins) if declared else self._known.predicate_factor(origins)

    def kind_factor(self, kind: str) -> float:
        """Return the factor by which operators of a kind cost more than estimated."""
        return self._known.kind_factor(kind)


class PooledKnowledge(Knowledge):
    """The combined knowledge of many queries, for plans of other queries.

    Operators are not identified by name, which has no meaning in another query, but conditions on streams and
    kinds of operators are.
    """

    def pool(self, other: Knowledge) -> None:
        """Add the knowledge of a query that applies to any plan."""
        if len(self._predicates) > _MAX_CONDITIONS:
            self._predicates.clear()
            self._predicate_factors.clear()
            self._equalities.clear()
            self._equalities_of.clear()
        self._predicates |= other._predicates
        self._predicate_factors |= other._predicate_factors
        self._add_equalities(other._equalities)
        for kind, factors in other._kinds.items():
            self._kinds[kind] = (self._kinds.get(kind, []) + factors)[-_MAX_FACTORS:]

    def without_conditions(self) -> PooledKnowledge:
        """Return a copy of the factors by kind alone."""
        copy = PooledKnowledge()
        copy._kinds = dict(self._kinds)
        return copy

    def kind_factor(self, kind: str) -> float:
        """Return the median factor of a kind: a single slow query must not distort the costs of others."""
        known = self._kinds.get(kind)
        return median(known) if known else 1.0


def _is_new(
    origins: Sequence[Expression], own: Mapping[Expression, float], known: Mapping[Expression, float]
) -> bool:
    """Whether a predicate is declared in `own` and not in `known`."""
    return any(origin in own for origin in origins) and not any(origin in known for origin in origins)
