"""Shared pipelines: prefixes that several queries have in common, run once as a query of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.sharing.membership import Membership
from mavstream_server.engine.sources.source_task import SourceTask
from mavstream_server.operators.fan_out import FanOut
from mavstream_server.planning.instantiator import Network
from mavstream_server.scheduling.view import OperatorView


class SharedSource(SourceTask):
    """The source of a shared pipeline: it also stops reading while the queues of a member are full."""

    __slots__ = ()

    @property
    def has_room(self) -> bool:
        """Whether the queues of the pipeline and of all its members have room for more rows."""
        return super().has_room and not self._crowded

    @property
    def ready(self) -> bool:
        """Whether it can emit a batch now and need not wait for more rows."""
        if not super().ready:
            return False
        if self._crowded:
            self.wait_for_room()
            return False
        return True

    @property
    def _crowded(self) -> bool:
        assert isinstance(self.query, SharedPipeline)
        return self.query.crowded


class SharedPipeline(RunningQuery):
    """A source and operators that several queries have in common, and a fan-out to these queries.

    Policies see it as a query, so that it is scheduled and accounted like one. Users do not see it.
    """

    source_task = SharedSource

    def __init__(self, request: QueryRequest, network: Network) -> None:
        super().__init__(request, network)
        self.members: list[Membership] = []
        """The memberships of its queries."""
        self._readers: list[OperatorView] = []
        self.fan_out = _fan_out(self)
        self.columns = self.fan_out.columns
        """The columns that it emits."""
        self.crowded_since: int | None = None
        """When the queues of a member became full (ns); None while all have room."""
        self.lowest_limit: int | None = None
        """The smallest memory limit of its members (bytes); None if none has one."""
        self.error: tuple[str, Exception] | None = None
        """The name of the operator that failed, and its exception."""

    def add(self, member: Membership) -> None:
        """Add a member: policies see its readers of the fan-out, and the pipeline's units become outdated."""
        self.members.append(member)
        self._readers += member.readers
        self.fan_out.add(member.branch())
        self._changed()

    def remove(self, member: Membership) -> None:
        """Remove a member."""
        self.members.remove(member)
        for reader in member.readers:
            self._readers.remove(reader)
        self.fan_out.remove(member.last)
        self._changed()

    def choose_watermarks(self) -> None:
        """Let watermarks without rows pass to the members that act on them."""
        self.fan_out.choose_watermarks()
        self.network.choose_watermarks()

    def _changed(self) -> None:
        self.choose_watermarks()
        self.outdated = True
        self.follow_sharing()

    @property
    def lowest_target(self) -> int | None:
        """The smallest effective latency target of its members (ns); None if none has one."""
        targets = (member.query.latency_target for member in self.members)
        return min((target for target in targets if target is not None), default=None)

    def retarget(self, latencies: Mapping[str, int]) -> None:
        """Set the effective latency target to the smallest of the members', which also bound the linger."""
        self.latency_target = self.lowest_target

    def connect(self) -> None:
        """Set the readers of each task; those of the fan-out are operators of the members."""
        super().connect()
        self.tasks[self.fan_out.name].downstream = self._readers

    @property
    def _runs_for(self) -> Iterable[str]:
        return [member.query.id for member in self.members]

    @property
    def known_as(self) -> str | None:
        """The id of a member; None if there are none left."""
        return self.members[0].query.id if self.members else None

    @property
    def has_more(self) -> bool:
        """Whether rows are queued between its operators, or a whole train can be read."""
        if self.network.account.rows:
            return True
        (task,) = self.sources.values()
        return task.work.behind and task.work.waiting_rows >= task.train and task.has_room

    @property
    def crowded(self) -> bool:
        """Whether the queues of a member are full. Marks such members blocked, so that draining wakes it."""
        if not self.fan_out.crowded:
            return False
        for member in self.members:
            if not member.has_room:
                member.query.blocked = True
        return True

    @property
    def is_quiescent(self) -> bool:
        """Whether all rows that it has read were emitted to its members."""
        return not (self.fan_out.gathered or any(task.ready for task in self.tasks.values()))


def _fan_out(query: RunningQuery) -> FanOut:
    output = query.output
    assert isinstance(output, FanOut)
    return output
