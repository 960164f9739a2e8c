"""Sharing of equal prefixes between queries: decides when queries are attached to shared pipelines.

Every query starts by itself. It is attached to a shared pipeline when both are at the same position of the
stream with empty queues and equal state: from then on their results are identical. A query that stops,
pauses, changes its class, or is too slow for the others is detached with a copy of the pipeline's state.
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
_NEAR_TRAINS = 4  # trains: a prefix further behind would make the others wait too long


class QuerySharing:
    """The sharing of prefixes in an engine. Call `attend` between two slices once it is `due` (ns)."""

    def __init__(self, engine: Engine, mode: Sharing, train: int) -> None:
        self._engine = engine
        self._near = _NEAR_TRAINS * train
        self._groups = PrefixGroups(mode, self._schedule)
        self._upkeep = PipelineUpkeep(engine, self._detach, self._account, self._schedule)
        self._attaching = Attaching(engine, self._upkeep.gathers, self._upkeep.is_crowded)
        self._rendezvous: list[Rendezvous] = []
        self.due = _NEVER

    def _schedule(self, time: int) -> None:
        self.due = min(self.due, time)

    @property
    def pipelines(self) -> Iterable[SharedPipeline]:
        """The shared pipelines that run at present."""
        return self._groups.pipelines.keys()

    # Changes of queries and pipelines

    def add(self, query: RunningQuery) -> None:
        """Make a query a candidate for sharing, from the next step on, if it may share at all."""
        if query.request.shares:
            self._groups.add(query)

    def remove(self, query: RunningQuery) -> None:
        """Remove a query that has ended; it must have been retired from the policy."""
        for member in tuple(query.shared):
            self._attaching.drop(member)
            self._upkeep.trouble(member.pipeline)
        self._groups.remove(query)

    def leave(self, query: RunningQuery) -> None:
        """Detach a query from its pipelines; it may be attached again later."""
        for member in tuple(query.shared):
            self._detach(member, self._engine.clock.now())

    def keep_apart(self, query: RunningQuery) -> None:
        """Detach a query and exclude it from sharing until `add` is called for it again."""
        self.leave(query)
        self._groups.remove(query)

    def ended(self, pipeline: SharedPipeline) -> None:
        """Remove a pipeline that has ended: its stream is complete, it was stopped, or it has failed."""
        group = self._groups.pipelines.pop(pipeline, None)
        if group is not None and group.pipeline is pipeline:
            group.pipeline = None
        self._upkeep.ended(pipeline)

    def reprioritised(self) -> None:
        """Follow changes of the members' classes, weights and latency targets."""
        for pipeline in self.pipelines:
            self._follow(pipeline)

    def retargeted(self, query: RunningQuery) -> None:
        """Follow a change of a query's latency target in its pipelines."""
        for member in query.shared:
            self._follow(member.pipeline)

    def _follow(self, pipeline: SharedPipeline) -> None:
        self._attaching.follow(pipeline)
        self._account(pipeline)

    def check_memory(self, pipeline: SharedPipeline) -> None:
        """Check the memory limits of the members of a pipeline."""
        self._upkeep.check_memory(pipeline)

    # Between two slices

    def attend(self, now: int) -> None:
        """Do what is due: relieve pipelines, end rendezvous, begin new ones."""
        self._upkeep.flush(now)
        self._relieve(now)
        for each in tuple(self._rendezvous):
            if each.complete or not each.begun <= now < each.deadline:  # clocks can be set back
                self._end_rendezvous(each, now)
        for group in self._groups.due(now):
            if self._attach(group, now):
                continue
            begun = meeting(group, now, self._near)
            if begun is None:
                self._groups.put_off(group, now)
            else:
                self._rendezvous.append(begun)
        self._set_due(now)

    def rest(self, now: int) -> bool:
        """Do what is due while the engine is idle; returns whether there may be work now."""
        flushed = self._upkeep.flush(None)
        if self.due > now and not self._rendezvous:
            return flushed
        done = self._relieve(now) or flushed or bool(self._rendezvous)
        for each in tuple(self._rendezvous):
            self._end_rendezvous(each, now)
        for group in self._groups.due(now):
            if self._attach(group, now):
                done = True
            else:
                self._groups.put_off(group, now)
        self._set_due(now)
        return done

    def _relieve(self, now: int) -> bool:
        moving = self._groups.moving
        helped = bool(moving)
        for member in [prefix.membership for prefix in moving]:
            if member is not None:
                self._detach(member, now)
        moving.clear()
        return self._upkeep.help(now) or helped

    def _set_due(self, now: int) -> None:
        times = [*self._groups.next_due, *self._upkeep.times(now), *([now] if self._rendezvous else ())]
        self.due = min(times, default=_NEVER)

    # Attaching and detaching

    def _end_rendezvous(self, ended: Rendezvous, now: int) -> None:
        self._rendezvous.remove(ended)
        ended.end()
        if not self._attach(ended.group, now):
            self._groups.put_off(ended.group, now)
        for task in ended.tasks:
            if task.attached:
                self._engine.intake.unblock(task.query, now)

    def _attach(self, group: PrefixGroup, now: int) -> bool:
        """Attach the prefixes of a group that are in the same state; returns whether there were any."""
        prefixes = group.standing_together(now)
        if not prefixes:
            return False
        pipeline = self._pipeline(group, prefixes)
        for prefix in prefixes:
            self._attaching.attach(prefix, group.depth, pipeline)
            self._groups.attached(prefix)
        self._account(pipeline)
        self._groups.put_off(group, now)
        return True

    def _pipeline(self, group: PrefixGroup, prefixes: list[RunningPrefix]) -> SharedPipeline:
        """Return a pipeline that emits all columns that the group's old and new members read."""
        columns = _union(prefixes, group.depth, group.pipeline)
        if group.pipeline is None:
            first = prefixes[0]
            group.pipeline = self._attaching.start(first, group.depth, columns, first.query.class_name)
        elif columns != group.pipeline.columns:
            group.pipeline = self._attaching.widen(group.pipeline, columns)
        self._groups.pipelines[group.pipeline] = group
        return group.pipeline

    def _account(self, pipeline: SharedPipeline) -> None:
        """Set a pipeline's class and weight to the highest, its latency target to the lowest of its members'.

        If its members have changed, the policy is given units that reflect their number and statistics.
        """
        if not pipeline.members:
            return
        priorities, queries = (
            self._engine.policy_host.priorities,
            [member.query for member in pipeline.members],
        )
        names = {query.class_name for query in queries}
        highest = min(names, key=lambda name: (-priorities.get(name, 1), name))
        weight = max(query.weight for query in queries)

        def change() -> None:
            pipeline.class_name, pipeline.weight = highest, weight

        present = pipeline.class_name, pipeline.weight, pipeline.latency_target
        if present != (highest, weight, pipeline.lowest_target):
            self._engine.policy_host.rearrange(pipeline, change)
        elif pipeline.outdated:
            self._engine.policy_host.refresh(pipeline)

    def _detach(self, member: Membership, now: int) -> None:
        pipeline = member.pipeline
        self._attaching.detach(member)
        if pipeline.active:
            self._account(pipeline)
            if len(pipeline.members) < 2:
                self._upkeep.trouble(pipeline)
        self._groups.detached(member.prefix, now)


def _union(prefixes: Iterable[RunningPrefix], depth: int, pipeline: SharedPipeline | None) -> tuple[str, ...]:
    """Return all columns that the prefixes emit at a depth, those of their pipeline first."""
    columns = dict.fromkeys(() if pipeline is None else pipeline.columns)
    for prefix in prefixes:
        columns |= dict.fromkeys(prefix.definition.columns[depth - 1])
    return tuple(columns)
