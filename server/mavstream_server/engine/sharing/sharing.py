"""Sharing: queries with equal prefixes are brought together when they come, and parted when they go.

Every query starts by itself. It is brought onto a trunk when both stand at the same place of the stream
with nothing on its way and would go on in the same way: from then on nothing can differ. A query that
stops, pauses, changes its class, or is too slow for the others leaves with a copy of the trunk's state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mavstream_protocol.scheduling import Sharing
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.sharing.attaching import Attaching
from mavstream_server.engine.sharing.grouping import PrefixGroups
from mavstream_server.engine.sharing.membership import Membership
from mavstream_server.engine.sharing.rendezvous import Rendezvous, meeting
from mavstream_server.engine.sharing.running_prefix import PrefixGroup, RunningPrefix
from mavstream_server.engine.sharing.shared_pipeline import SharedPipeline
from mavstream_server.engine.sharing.upkeep import PipelineUpkeep

if TYPE_CHECKING:
    from mavstream_server.engine.engine import Engine

_NEVER = 1 << 63
_NEAR = 4  # trains: who is further behind would let others wait too long


class QuerySharing:
    """The prefixes of an engine's queries. `due` is when `attend` should be called, between two slices."""

    def __init__(self, engine: Engine, mode: Sharing, train: int) -> None:
        self._engine = engine
        self._near = _NEAR * train
        self._groups = PrefixGroups(mode, self._call)
        self._care = PipelineUpkeep(engine, self._cut, self._charge, self._call)
        self._grafting = Attaching(engine, self._care.gathers, self._care.is_crowded)
        self._meetings: list[Rendezvous] = []
        self.due = _NEVER

    def _call(self, time: int) -> None:
        self.due = min(self.due, time)

    @property
    def trunks(self) -> Iterable[SharedPipeline]:
        """What is shared at present."""
        return self._groups.trunks.keys()

    # Queries come and go

    def came(self, query: RunningQuery) -> None:
        """Look for others to share with, from the next step on."""
        self._groups.add(query)

    def gone(self, query: RunningQuery) -> None:
        """Forget a query that has ended; policies do not know it any more."""
        for part in tuple(query.shared):
            self._grafting.drop(part)
            self._care.trouble(part.trunk)
        self._groups.remove(query)

    def leave(self, query: RunningQuery) -> None:
        """Let a query run its prefixes itself; it may be brought together with others again later."""
        for part in tuple(query.shared):
            self._cut(part, self._engine.clock.now())

    def keep_apart(self, query: RunningQuery) -> None:
        """Let a query run its prefixes itself until it is said to have come again."""
        self.leave(query)
        self._groups.remove(query)

    def ended(self, trunk: SharedPipeline) -> None:
        """A trunk runs no more: its stream is complete, it was given up, or it has failed."""
        group = self._groups.trunks.pop(trunk, None)
        if group is not None and group.trunk is trunk:
            group.trunk = None
        self._care.ended(trunk)

    def reprioritised(self) -> None:
        """Let trunks run in the highest class and with the largest weight that their queries have now."""
        for trunk in self.trunks:
            self._charge(trunk)

    def retargeted(self, query: RunningQuery) -> None:
        """Let the trunks of a query whose targets have changed wait no longer than it may."""
        for part in query.shared:
            self._grafting.follow(part.trunk)

    def check_memory(self, trunk: SharedPipeline) -> None:
        """See whether the queries of a trunk that has grown keep their limits."""
        self._care.check_memory(trunk)

    # Between two slices

    def attend(self, now: int) -> None:
        """Do what is due: help who is in trouble, end meetings, begin new ones."""
        self._care.flush(now)
        self._help(now)
        for each in tuple(self._meetings):
            if each.complete or not each.begun <= now < each.deadline:  # clocks can be set back
                self._end(each, now)
        for group in self._groups.due(now):
            if self._unite(group, now):
                continue
            begun = meeting(group, now, self._near)
            if begun is None:
                self._groups.put_off(group, now)
            else:
                self._meetings.append(begun)
        self._look_ahead(now)

    def rest(self, now: int) -> bool:
        """Do what is due while there is nothing else to do; returns whether there may be now."""
        flushed = self._care.flush(None)
        if self.due > now and not self._meetings:
            return flushed
        done = self._help(now) or flushed or bool(self._meetings)
        for each in tuple(self._meetings):
            self._end(each, now)
        for group in self._groups.due(now):
            if self._unite(group, now):
                done = True
            else:
                self._groups.put_off(group, now)
        self._look_ahead(now)
        return done

    def _help(self, now: int) -> bool:
        moving = self._groups.moving
        helped = bool(moving)
        for part in [strand.part for strand in moving]:
            if part is not None:
                self._cut(part, now)
        moving.clear()
        return self._care.help(now) or helped

    def _look_ahead(self, now: int) -> None:
        times = [*self._groups.next_due, *self._care.times(now), *([now] if self._meetings else ())]
        self.due = min(times, default=_NEVER)

    # Bringing together, and parting

    def _end(self, ended: Rendezvous, now: int) -> None:
        self._meetings.remove(ended)
        ended.end()
        if not self._unite(ended.group, now):
            self._groups.put_off(ended.group, now)
        for task in ended.tasks:
            if task.attached:
                self._engine.intake.unblock(task.query, now)

    def _unite(self, group: PrefixGroup, now: int) -> bool:
        """Bring together who stands together; returns whether anybody did."""
        strands = group.standing_together(now)
        if not strands:
            return False
        trunk = self._trunk(group, strands)
        for strand in strands:
            self._grafting.graft(strand, group.depth, trunk)
            self._groups.grafted(strand)
        self._charge(trunk)
        self._groups.put_off(group, now)
        return True

    def _trunk(self, group: PrefixGroup, strands: list[RunningPrefix]) -> SharedPipeline:
        """Return a trunk that hands on all that the group's old and new queries read."""
        columns = _union(strands, group.depth, group.trunk)
        if group.trunk is None:
            first = strands[0]
            group.trunk = self._grafting.plant(first, group.depth, columns, first.query.class_name)
        elif columns != group.trunk.columns:
            group.trunk = self._grafting.replant(group.trunk, columns)
        self._groups.trunks[group.trunk] = group
        return group.trunk

    def _charge(self, trunk: SharedPipeline) -> None:
        """Let a trunk run in the highest class that uses it, with the largest weight of its queries.

        If members have changed, policies rate it anew: for how many it works, and what they make of it.
        """
        if not trunk.parts:
            return
        priorities, queries = self._engine.seat.priorities, [part.query for part in trunk.parts]
        names = {query.class_name for query in queries}
        highest = min(names, key=lambda name: (-priorities.get(name, 1), name))
        weight = max(query.weight for query in queries)

        def change() -> None:
            trunk.class_name, trunk.weight = highest, weight

        if (trunk.class_name, trunk.weight) != (highest, weight):
            self._engine.seat.rearrange(trunk, change)
        elif trunk.outdated:
            self._engine.seat.refresh(trunk)

    def _cut(self, part: Membership, now: int) -> None:
        trunk = part.trunk
        self._grafting.cut(part)
        if trunk.active:
            self._charge(trunk)
            if len(trunk.parts) < 2:
                self._care.trouble(trunk)
        self._groups.cut(part.strand, now)


def _union(strands: Iterable[RunningPrefix], depth: int, trunk: SharedPipeline | None) -> tuple[str, ...]:
    """Return all columns that go on from a prefix, those of its trunk first."""
    columns = dict.fromkeys(() if trunk is None else trunk.columns)
    for strand in strands:
        columns |= dict.fromkeys(strand.chain.columns[depth - 1])
    return tuple(columns)
