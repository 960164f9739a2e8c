"""Strands: chains of running queries, and where those with equal prefixes find each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.sharing.membership import Membership
from mavstream_server.engine.sharing.prefix import Prefix
from mavstream_server.engine.sharing.shared_pipeline import SharedPipeline
from mavstream_server.engine.source_task import SourceTask
from mavstream_server.engine.states import QueryState
from mavstream_server.operators.operator import Operator

_FIRST_WAIT, _LONGEST_WAIT = 1_000_000, 1_000_000_000  # ns between two attempts to bring strands together
_FIRST_REST = 1_000_000_000  # ns for which a query that was too slow for others runs by itself
_HOPELESS = 50_000_000  # ns: who waits so long between attempts is not expected to come together soon
_MOST = 200  # strands that are brought together at a time: each takes some 0.1 ms


@dataclass(eq=False, slots=True)
class RunningPrefix:
    """A chain of a running query."""

    query: RunningQuery
    chain: Prefix
    part: Membership | None = None
    """What a trunk runs of it."""
    rests_until: int = 0
    """It is left alone until then,"""
    rest: int = _FIRST_REST
    """and so long if it is too slow for others again."""
    groups: list[PrefixGroup] = field(default_factory=list)
    """Those that it has a prefix in common with, the largest one last."""

    @property
    def task(self) -> SourceTask:
        """Its source; while it is free."""
        return self.query.sources[self.chain.nodes[0]]

    def operators(self, depth: int) -> list[Operator]:
        """Return the query's own operators of the source and so many nodes."""
        return [self.query.network.operators[name] for name in self.chain.nodes[: depth + 1]]

    def is_free(self, now: int) -> bool:
        """Whether it may be brought together with others."""
        if self.part is not None or self.query.state is not QueryState.RUNNING or now < self.rests_until:
            return False
        source = self.task.work
        # Rows that it has shed may be missing in its windows.
        shed = source.shedder is not None or (self.chain.windowed and bool(source.counters["shed"]))
        return not shed and not source.ended and source.until is None

    @property
    def best(self) -> PrefixGroup:
        """The group that saves most."""
        return max(self.groups, key=lambda group: (group.value, group.depth))

    def would_join(self, group: PrefixGroup) -> bool:
        """Whether a group is the one for it: that which saves most, unless that does not come together."""
        best = self.best
        return group is best or best.wait > _HOPELESS

    def is_still(self, depth: int) -> bool:
        """Whether all that its source has handed on has passed the prefix."""
        return not any(len(queue) for operator in self.operators(depth) for queue in operator.inputs)

    def was_slow(self, now: int) -> None:
        """Leave it alone for a while, and longer the next time."""
        self.rests_until = now + self.rest
        self.rest *= 2


@dataclass(eq=False, slots=True)
class PrefixGroup:
    """The strands that have a prefix of so many nodes in common, and the trunk that runs it for some."""

    key: tuple[str | None, str]
    """The class, where only queries of one share, and what the prefix does."""
    depth: int
    everyone: dict[RunningPrefix, None] = field(default_factory=dict)
    strands: dict[RunningPrefix, None] = field(default_factory=dict)
    """Those that are on no trunk."""
    trunk: SharedPipeline | None = None
    due: int | None = None
    """When to bring them together, if ever;"""
    wait: int = _FIRST_WAIT
    """and how long to wait then if that was not possible."""

    @property
    def value(self) -> int:
        """How many operators need not run if all share."""
        return (len(self.everyone) - 1) * (self.depth + 1)

    @property
    def worth_it(self) -> bool:
        """Whether there are two who could be brought together."""
        return len(self.strands) + (self.trunk is not None) > 1

    def put_off(self, now: int) -> int:
        """Try again later, and later each time; returns when."""
        self.due = now + self.wait
        self.wait = min(2 * self.wait, _LONGEST_WAIT)
        return self.due

    def hurry(self) -> int:
        """Try soon: somebody has come; returns when."""
        self.due, self.wait = 0, _FIRST_WAIT
        return 0

    def free(self, now: int) -> list[RunningPrefix]:
        """Return those that may be brought together, as many as are worth it at a time."""
        found = []
        for strand in self.strands:
            if strand.is_free(now) and strand.would_join(self):
                found.append(strand)
                if len(found) == _MOST:
                    break
        return found

    def standing_together(self, now: int) -> list[RunningPrefix]:
        """Return free strands that would go on as the trunk does, or as each other if there is none."""
        still = [strand for strand in self.free(now) if strand.is_still(self.depth)]
        if self.trunk is not None:
            if not self.trunk.is_still:
                return []
            return self._agreeing(list(self.trunk.network.operators.values())[:-1], still)
        places: dict[object, list[RunningPrefix]] = {}
        for strand in still:
            place = strand.task.work.cursor.read_key(0)
            if place is not None:
                places.setdefault(place, []).append(strand)
        most = max(places.values(), key=len, default=[])
        if len(most) < 2:
            return []
        together = self._agreeing(most[0].operators(self.depth), most)
        return together if len(together) > 1 else []

    def _agreeing(self, operators: list[Operator], strands: list[RunningPrefix]) -> list[RunningPrefix]:
        return [
            strand
            for strand in strands
            if all(one.agrees(two) for one, two in zip(operators, strand.operators(self.depth), strict=True))
        ]
