"""Groups running queries by common prefixes, and schedules attempts to share them."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from mavstream_protocol.scheduling import Sharing
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.sharing.prefix import prefixes
from mavstream_server.engine.sharing.running_prefix import PrefixGroup, RunningPrefix
from mavstream_server.engine.sharing.shared_pipeline import SharedPipeline

_MUCH = 1.5  # a prefix changes its pipeline only for a group that saves this many times as many operators


class PrefixGroups:
    """The running prefixes of an engine by what they compute, and an agenda of the groups to attach."""

    def __init__(self, mode: Sharing, schedule: Callable[[int], None]) -> None:
        """`call` is called with the time (ns) of each attempt that is scheduled."""
        self._mode = mode
        self._schedule = schedule
        self._prefixes: dict[RunningQuery, list[RunningPrefix]] = {}
        self._groups: dict[tuple[str | None, str], PrefixGroup] = {}
        self._agenda: list[tuple[int, int, PrefixGroup]] = []  # a heap by due time
        self._ties = count()
        self.pipelines: dict[SharedPipeline, PrefixGroup] = {}
        self.moving: dict[RunningPrefix, None] = {}
        """Prefixes that are to leave their pipeline for a group that saves more operators."""

    def add(self, query: RunningQuery) -> None:
        """Add a query's prefixes to the groups of equal prefixes; does nothing if sharing is off."""
        if self._mode is Sharing.OFF:
            return
        request = query.request
        class_name = query.class_name if self._mode is Sharing.CLASS else None
        running = [RunningPrefix(query, prefix) for prefix in prefixes(request.plan, request.options)]
        self._prefixes[query] = running
        for prefix in running:
            for depth, done in enumerate(prefix.definition.keys, 1):
                key = class_name, done
                group = self._groups.setdefault(key, PrefixGroup(key, depth))
                group.everyone[prefix] = group.unattached[prefix] = None
                prefix.groups.append(group)
                self._plan(group, group.hurry)
            self._review(prefix)

    def remove(self, query: RunningQuery) -> None:
        """Remove the prefixes of a query that is not a member of any pipeline."""
        for prefix in self._prefixes.pop(query, ()):
            for group in prefix.groups:
                group.unattached.pop(prefix, None)
                del group.everyone[prefix]
                if not group.everyone:
                    del self._groups[group.key]

    def attached(self, prefix: RunningPrefix) -> None:
        """Record that a prefix was attached to a pipeline: it is no candidate any more."""
        for group in prefix.groups:
            del group.unattached[prefix]

    def detached(self, prefix: RunningPrefix, now: int) -> None:
        """Record that a prefix was detached: it is a candidate again, after a delay."""
        for group in prefix.groups:
            group.unattached[prefix] = None
            self.put_off(group, now)

    def _review(self, added: RunningPrefix) -> None:
        """Find prefixes that should move to a larger group of shorter prefixes, now that this one was added.

        A group is reviewed whenever its size has doubled, so that the amortized cost per query is constant.
        """
        for group in added.groups:
            size = len(group.everyone)
            if size & (size - 1) == 0:
                for prefix in group.everyone:
                    present = (
                        None if prefix.membership is None else self.pipelines.get(prefix.membership.pipeline)
                    )
                    if present is not None and group.value > _MUCH * present.value:
                        self.moving[prefix] = None
                        self._schedule(0)

    # Agenda

    def put_off(self, group: PrefixGroup, now: int) -> None:
        """Schedule another attempt with a growing delay, if the group has two candidates."""
        self._plan(group, lambda: group.put_off(now))

    def due(self, now: int) -> list[PrefixGroup]:
        """Remove the groups that are due from the agenda and return them, the most valuable first."""
        agenda, due = self._agenda, []
        while agenda and agenda[0][0] <= now:
            time, _, group = heappop(agenda)
            if group.due == time:  # otherwise it was rescheduled
                group.due = None
                due.append(group)
        return sorted(due, key=lambda group: (-group.value, -group.depth))

    @property
    def next_due(self) -> list[int]:
        """The time of the next attempt (ns): a list of one, or empty."""
        return [self._agenda[0][0]] if self._agenda else []

    def _plan(self, group: PrefixGroup, due_time: Callable[[], int]) -> None:
        group.due = None
        if group.worth_it:
            due = due_time()
            heappush(self._agenda, (due, next(self._ties), group))
            self._schedule(due)
