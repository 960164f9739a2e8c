"""Trunks: prefixes that several queries share, run once, as a query of their own."""

from __future__ import annotations

from mavstream_server.engine.query import QueryRequest, RunningQuery
from mavstream_server.engine.sharing.membership import Membership
from mavstream_server.engine.source_task import SourceTask
from mavstream_server.operators.fan_out import FanOut
from mavstream_server.planning.instantiator import Network
from mavstream_server.scheduling.view import OperatorView


class SharedSource(SourceTask):
    """The source of a trunk: it does not read on either while a query that shares it has no room."""

    __slots__ = ()

    @property
    def has_room(self) -> bool:
        """Whether the trunk's queues have room for more, and those of all its queries."""
        return super().has_room and not self._crowded

    @property
    def ready(self) -> bool:
        """Whether it could hand on something now, and would not rather wait for more."""
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
    """A source and operators that several queries have in common, and a fan-out to those queries.

    Policies see it as a query, so it is scheduled and charged like one, by its class. Users do not.
    """

    source_task = SharedSource

    def __init__(self, request: QueryRequest, network: Network) -> None:
        super().__init__(request, network)
        self.parts: list[Membership] = []
        """What queries have in it."""
        self._readers: list[OperatorView] = []
        self.fan_out = _fan_out(self)
        self.columns = self.fan_out.columns
        """What it hands on."""
        self.crowded_since: int | None = None
        """When a query had no room for the first time; None once all had."""
        self.lowest_limit: int | None = None
        """Of the memory that its queries may hold."""
        self.error: tuple[str, Exception] | None = None
        """What broke, and in which operator."""

    def add(self, part: Membership) -> None:
        """Take in a member: policies see who reads the fan-out, and rate the pipeline anew when told to."""
        self.parts.append(part)
        self._readers += part.readers
        self.outdated = True

    def remove(self, part: Membership) -> None:
        """Let a member go."""
        self.parts.remove(part)
        for reader in part.readers:
            self._readers.remove(reader)
        self.outdated = True

    def connect(self) -> None:
        """Tell tasks who reads what they emit: of the fan-out, operators of the members."""
        super().connect()
        self.tasks[self.fan_out.name].downstream = self._readers

    @property
    def known_as(self) -> str | None:
        """The id of a query that it reads for, if there is one left."""
        return self.parts[0].query.id if self.parts else None

    @property
    def has_more(self) -> bool:
        """Whether more rows are on their way, or a whole train is there to be read."""
        if self.network.account.rows:
            return True
        (task,) = self.sources.values()
        return task.work.behind and task.work.waiting_rows >= task.train and task.has_room

    @property
    def crowded(self) -> bool:
        """Whether a query has no room for more; it is then made to tell when it has."""
        if not self.fan_out.crowded:
            return False
        for part in self.parts:
            if not part.has_room:
                part.query.blocked = True
        return True

    @property
    def is_still(self) -> bool:
        """Whether all that it has read is handed on."""
        return not (self.fan_out.gathered or any(task.ready for task in self.tasks.values()))


def _fan_out(query: RunningQuery) -> FanOut:
    output = query.output
    assert isinstance(output, FanOut)
    return output
