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


def is_still(query: RunningQuery) -> bool:
    """Whether all that its sources have handed on is worked in; to be asked between two slices."""
    return not any(task.ready for task in query.tasks.values())


class _Ask:
    __slots__ = ("queries", "work")

    def __init__(self, queries: Sequence[RunningQuery], work: Work) -> None:
        self.queries = tuple(queries)
        self.work = work


class StillPoints:
    """Holds the sources of queries until these stand still together, does what was asked for, lets go.

    Queries that nobody asked for are not disturbed. While nothing is asked for, this is empty and false.
    """

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._asks: list[_Ask] = []
        self._rooms: dict[RunningQuery, dict[str, int]] = {}  # what sources of held queries had, by name

    def __len__(self) -> int:
        return len(self._asks)

    def ask(self, queries: Sequence[RunningQuery], work: Work) -> None:
        """Do `work` once, when all these queries stand still; they must be running."""
        self._asks.append(_Ask(queries, work))
        for query in queries:
            self._hold(query)

    def drop(self, query: RunningQuery) -> None:
        """Do nothing any more of what was asked for with this query: it is paused, or has ended."""
        dropped = [ask for ask in self._asks if query in ask.queries]
        self._asks = [ask for ask in self._asks if query not in ask.queries]
        for ask in dropped:
            self._let_go(ask, 0)

    def look(self, now: int) -> None:
        """Do what can be done; to be called between two slices while something is asked for."""
        for ask in tuple(self._asks):
            if ask in self._asks and all(map(is_still, ask.queries)):
                self._asks.remove(ask)
                try:
                    ask.work()
                finally:
                    self._let_go(ask, now)

    def _hold(self, query: RunningQuery) -> None:
        """Leave no room for more rows: as with full queues, the sources wait until there is."""
        if query not in self._rooms:
            self._rooms[query] = {name: task.room for name, task in query.sources.items()}
        for task in query.sources.values():
            task.room = 0
            if self._intake.service is SourceService.PER_CLASS and task.state is OperatorState.READY:
                task.state = OperatorState.SUSPEND  # the policy is told again when it may read on
        query.blocked = True

    def _let_go(self, ask: _Ask, now: int) -> None:
        for query in ask.queries:
            if query in self._rooms and not any(query in other.queries for other in self._asks):
                rooms = self._rooms.pop(query)
                for name, task in query.sources.items():
                    task.room = rooms.get(name, task.room)
                self._intake.unblock(query, now)
