"""Prefixes of running queries, and groups of those that are equal."""

from __future__ import annotations

from dataclasses import dataclass, field

from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.sharing.membership import Membership
from mavstream_server.engine.sharing.prefix import Prefix
from mavstream_server.engine.sharing.shared_pipeline import SharedPipeline
from mavstream_server.engine.sources.source_task import SourceTask
from mavstream_server.engine.states import QueryState
from mavstream_server.operators.operator import Operator

_FIRST_WAIT, _LONGEST_WAIT = 1_000_000, 1_000_000_000  # ns between two attempts to attach prefixes
_FIRST_REST = 1_000_000_000  # ns for which a query that was too slow for the others is not shared
_HOPELESS = 50_000_000  # ns between attempts beyond which a group is not expected to be attached soon
_MOST = 200  # prefixes that are attached at a time: each takes some 0.1 ms


@dataclass(eq=False, slots=True)
class RunningPrefix:
    """A prefix of a running query."""

    query: RunningQuery
    definition: Prefix
    membership: Membership | None = None
    """The membership in the pipeline that runs it; None while the query runs it itself."""
    rests_until: int = 0
    """The time (ns) before which it is not shared."""
    rest: int = _FIRST_REST
    """How long it is not shared (ns) if it is too slow for the others again; doubles each time."""
    groups: list[PrefixGroup] = field(default_factory=list)
    """The groups that it belongs to, by depth: the longest common prefix last."""

    @property
    def task(self) -> SourceTask:
        """The task of its source; only while it is not attached."""
        return self.query.sources[self.definition.nodes[0]]

    def operators(self, depth: int) -> list[Operator]:
        """Return the query's own operators: of the source and the first `depth` nodes."""
        return [self.query.network.operators[name] for name in self.definition.nodes[: depth + 1]]

    def is_free(self, now: int) -> bool:
        """Whether it may be attached to a pipeline."""
        if (
            self.membership is not None
            or self.query.state is not QueryState.RUNNING
            or now < self.rests_until
        ):
            return False
        source = self.task.work
        # Its windows may lack rows that it has shed.
        shed = source.shedder is not None or (self.definition.windowed and bool(source.counters["shed"]))
        return self.task.attached and not shed and not source.ended and source.until is None

    @property
    def best(self) -> PrefixGroup:
        """The group that saves most operators."""
        return max(self.groups, key=lambda group: (group.value, group.depth))

    def would_join(self, group: PrefixGroup) -> bool:
        """Whether to join a group: the one that saves most, or any if that one repeatedly fails to attach."""
        best = self.best
        return group is best or best.wait > _HOPELESS

    def is_quiescent(self, depth: int) -> bool:
        """Whether all queues of the prefix are empty."""
        return not any(len(queue) for operator in self.operators(depth) for queue in operator.inputs)

    def was_slow(self, now: int) -> None:
        """Do not share it for a while, and twice as long the next time."""
        self.rests_until = now + self.rest
        self.rest *= 2


@dataclass(eq=False, slots=True)
class PrefixGroup:
    """The running prefixes that are equal up to a depth, and the pipeline that runs it for some of them."""

    key: tuple[str | None, str]
    """The class (None if classes share with each other), and the signature of the prefix."""
    depth: int
    """Nodes above the source."""
    everyone: dict[RunningPrefix, None] = field(default_factory=dict)
    unattached: dict[RunningPrefix, None] = field(default_factory=dict)
    """The prefixes that are not attached."""
    pipeline: SharedPipeline | None = None
    due: int | None = None
    """The time of the next attempt to attach them (ns); None if none is scheduled."""
    wait: int = _FIRST_WAIT
    """The delay of the following attempt (ns); doubles with each failed one."""

    @property
    def value(self) -> int:
        """The number of operators that need not run if all prefixes are shared."""
        return (len(self.everyone) - 1) * (self.depth + 1)

    @property
    def worth_it(self) -> bool:
        """Whether there are two candidates to be shared, the pipeline included."""
        return len(self.unattached) + (self.pipeline is not None) > 1

    def put_off(self, now: int) -> int:
        """Schedule the next attempt with a growing delay; returns its time (ns)."""
        self.due = now + self.wait
        self.wait = min(2 * self.wait, _LONGEST_WAIT)
        return self.due

    def hurry(self) -> int:
        """Schedule an attempt at once because a prefix was added; returns its time."""
        self.due, self.wait = 0, _FIRST_WAIT
        return 0

    def free(self, now: int) -> list[RunningPrefix]:
        """Return prefixes that may be attached now, at most as many as are attached at a time."""
        found = []
        for prefix in self.unattached:
            if prefix.is_free(now) and prefix.would_join(self):
                found.append(prefix)
                if len(found) == _MOST:
                    break
        return found

    def standing_together(self, now: int) -> list[RunningPrefix]:
        """Return free prefixes whose state equals the pipeline's, or each other's if there is no pipeline."""
        still = [prefix for prefix in self.free(now) if prefix.is_quiescent(self.depth)]
        if self.pipeline is not None:
            if not self.pipeline.is_quiescent:
                return []
            return self._in_agreement(list(self.pipeline.network.operators.values())[:-1], still)
        by_position: dict[object, list[RunningPrefix]] = {}
        for prefix in still:
            position = prefix.task.work.cursor.read_key(0)
            if position is not None:
                by_position.setdefault(position, []).append(prefix)
        most = max(by_position.values(), key=len, default=[])
        if len(most) < 2:
            return []
        together = self._in_agreement(most[0].operators(self.depth), most)
        return together if len(together) > 1 else []

    def _in_agreement(self, operators: list[Operator], prefixes: list[RunningPrefix]) -> list[RunningPrefix]:
        return [
            prefix
            for prefix in prefixes
            if all(one.agrees(two) for one, two in zip(operators, prefix.operators(self.depth), strict=True))
        ]
