"""Still points: moments at which nothing of a query is on its way, so that its operators can be exchanged.

Between two slices, with all queues empty, what a query has answered depends on its plan and on the
positions of its cursors alone. A query that is fed all the time comes to such a point by holding its sources.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mavstream_server.engine.intake import Intake
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.states import OperatorState
from mavstream_server.scheduling.policy import SourceService

Work = Callable[[], None]
Condition = Callable[[], bool]


def is_still(query: RunningQuery) -> bool:
    """Whether all that its sources have handed on is worked in; to be asked between two slices."""
    return not any(task.ready for task in query.tasks.values())


class Ask:
    """Work that waits for a still point."""

    __slots__ = ("holds", "queries", "when", "work")

    def __init__(self, queries: Sequence[RunningQuery], work: Work, when: Condition | None) -> None:
        self.queries = tuple(queries)
        self.work = work
        self.when = when
        self.holds = False
        """Whether the sources of the queries are held for it."""


class QuiescentPoints:
    """Holds the sources of queries until these stand still together, does what was asked for, lets go.

    Queries that nobody asked for are not disturbed.
    """

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self.wanted: list[Ask] = []
        """What waits. While this is empty, there is nothing to look at."""
        self._rooms: dict[RunningQuery, dict[str, int]] = {}  # what sources of held queries had, by name

    def ask(self, queries: Sequence[RunningQuery], work: Work, when: Condition | None = None) -> Ask:
        """Do `work` once, when all these queries, which must be running, stand still.

        With `when`, they are held only from when that is true on.
        """
        ask = Ask(queries, work, when)
        self.wanted.append(ask)
        if when is None:
            self._hold(ask)
        return ask

    def cancel(self, ask: Ask) -> None:
        """Do nothing any more of this; it may be done already."""
        if ask in self.wanted:
            self.wanted.remove(ask)
            self._let_go(ask, 0)

    def drop(self, query: RunningQuery) -> None:
        """Do nothing any more of what was asked for with this query: it is paused, or has ended."""
        for ask in [ask for ask in self.wanted if query in ask.queries]:
            self.cancel(ask)

    def wake(self, query: RunningQuery) -> None:
        """Let a query that is not held read on: rows went from its queues that nobody has worked on."""
        if query not in self._rooms:
            self._intake.unblock(query, 0)

    def look(self, now: int) -> None:
        """Do what can be done; to be called between two slices while something waits."""
        for ask in tuple(self.wanted):
            if ask not in self.wanted:
                continue  # it went with another one
            if not ask.holds:
                if ask.when is not None and not ask.when():
                    continue
                if ask in self.wanted:
                    self._hold(ask)
            if all(map(is_still, ask.queries)):
                self.wanted.remove(ask)
                try:
                    ask.work()
                finally:
                    self._let_go(ask, now)

    def _hold(self, ask: Ask) -> None:
        """Leave no room for more rows: as with full queues, the sources wait until there is."""
        ask.holds = True
        for query in ask.queries:
            if query not in self._rooms:
                self._rooms[query] = {name: task.room for name, task in query.sources.items()}
            for task in query.sources.values():
                task.room = 0
                if self._intake.service is SourceService.PER_CLASS and task.state is OperatorState.READY:
                    task.state = OperatorState.SUSPEND  # the policy is told again when it may read on
            query.blocked = True

    def _let_go(self, ask: Ask, now: int) -> None:
        for query in ask.queries:
            if query in self._rooms and not any(a.holds and query in a.queries for a in self.wanted):
                rooms = self._rooms.pop(query)
                for name, task in query.sources.items():
                    task.room = rooms.get(name, task.room)
                self._intake.unblock(query, now)
