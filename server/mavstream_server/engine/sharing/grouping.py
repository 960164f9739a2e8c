"""Finding: which queries have prefixes in common, and when to try to bring them together."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from mavstream_protocol.scheduling import Sharing
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.sharing.prefix import prefixes
from mavstream_server.engine.sharing.running_prefix import PrefixGroup, RunningPrefix
from mavstream_server.engine.sharing.shared_pipeline import SharedPipeline

_MUCH = 1.5  # times as many operators must be saved for queries to go from one trunk to another


class PrefixGroups:
    """All strands by what their prefixes do, and an agenda of the groups that are to be brought together."""

    def __init__(self, mode: Sharing, call: Callable[[int], None]) -> None:
        """`call` is told a time at which something will be due."""
        self._mode = mode
        self._call = call
        self._strands: dict[RunningQuery, list[RunningPrefix]] = {}
        self._groups: dict[tuple[str | None, str], PrefixGroup] = {}
        self._agenda: list[tuple[int, int, PrefixGroup]] = []  # a heap by when to try
        self._ties = count()
        self.trunks: dict[SharedPipeline, PrefixGroup] = {}
        self.moving: dict[RunningPrefix, None] = {}
        """Those that should leave their trunk for a group that saves more."""

    def add(self, query: RunningQuery) -> None:
        """Look for others with the same prefixes."""
        if self._mode is Sharing.OFF:
            return
        request = query.request
        class_name = query.class_name if self._mode is Sharing.CLASS else None
        strands = [RunningPrefix(query, chain) for chain in prefixes(request.plan, request.options)]
        self._strands[query] = strands
        for strand in strands:
            for depth, done in enumerate(strand.chain.keys, 1):
                key = class_name, done
                group = self._groups.setdefault(key, PrefixGroup(key, depth))
                group.everyone[strand] = group.strands[strand] = None
                strand.groups.append(group)
                self._plan(group, group.hurry)
            self._review(strand)

    def remove(self, query: RunningQuery) -> None:
        """Forget a query that is on no trunk."""
        for strand in self._strands.pop(query, ()):
            for group in strand.groups:
                group.strands.pop(strand, None)
                del group.everyone[strand]
                if not group.everyone:
                    del self._groups[group.key]

    def grafted(self, strand: RunningPrefix) -> None:
        """A strand is on a trunk: it is not looked for any more."""
        for group in strand.groups:
            del group.strands[strand]

    def cut(self, strand: RunningPrefix, now: int) -> None:
        """A strand has left its trunk: it may be brought together with others again, in a while."""
        for group in strand.groups:
            group.strands[strand] = None
            self.put_off(group, now)

    def _review(self, came: RunningPrefix) -> None:
        """See whether others should share less, but with more, since this one has come.

        Looked at when a group has doubled, so that many who come cost each a little.
        """
        for group in came.groups:
            size = len(group.everyone)
            if size & (size - 1) == 0:
                for strand in group.everyone:
                    present = None if strand.part is None else self.trunks.get(strand.part.trunk)
                    if present is not None and group.value > _MUCH * present.value:
                        self.moving[strand] = None
                        self._call(0)

    # When

    def put_off(self, group: PrefixGroup, now: int) -> None:
        """Try again later, if there is anybody to bring together."""
        self._plan(group, lambda: group.put_off(now))

    def due(self, now: int) -> list[PrefixGroup]:
        """Return the groups to be brought together now: those that save most first."""
        agenda, due = self._agenda, []
        while agenda and agenda[0][0] <= now:
            time, _, group = heappop(agenda)
            if group.due == time:  # else it was planned anew
                group.due = None
                due.append(group)
        return sorted(due, key=lambda group: (-group.value, -group.depth))

    @property
    def next_due(self) -> list[int]:
        """When something is due next, if anything is."""
        return [self._agenda[0][0]] if self._agenda else []

    def _plan(self, group: PrefixGroup, when: Callable[[], int]) -> None:
        group.due = None
        if group.worth_it:
            due = when()
            heappush(self._agenda, (due, next(self._ties), group))
            self._call(due)
