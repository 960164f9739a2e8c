"""Quiescent points: moments at which no rows are between a query's operators, so that these can be exchanged.

Between two slices, with all queues empty, the answers of a query so far depend only on its plan and on the
positions of its cursors. A query with continuous input reaches such a point because its sources are held.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.sources.intake import Intake
from mavstream_server.engine.states import OperatorState
from mavstream_server.scheduling.policy import SourceService

Work = Callable[[], None]
Condition = Callable[[], bool]


def is_quiescent(query: RunningQuery) -> bool:
    """Whether all queues of a query are empty; call it between two slices."""
    return not any(task.ready for task in query.tasks.values())


class Ask:
    """A callback that waits for a quiescent point of some queries."""

    __slots__ = ("holds", "queries", "when", "work")

    def __init__(self, queries: Sequence[RunningQuery], work: Work, when: Condition | None) -> None:
        self.queries = tuple(queries)
        self.work = work
        self.when = when
        self.holds = False
        """Whether the sources of the queries are being held for it."""


class QuiescentPoints:
    """Holds the sources of queries until all of these are quiescent, runs the callback, and releases them.

    Other queries are not affected.
    """

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self.wanted: list[Ask] = []
        """The pending callbacks. While this is empty, `look` need not be called."""
        self._rooms: dict[RunningQuery, dict[str, int]] = {}  # of held sources, by name, to be restored

    def ask(self, queries: Sequence[RunningQuery], work: Work, when: Condition | None = None) -> Ask:
        """Call `work` once, when all these queries, which must be running, are quiescent.

        With `when`, their sources are held only once that returns True.
        """
        ask = Ask(queries, work, when)
        self.wanted.append(ask)
        if when is None:
            self._hold(ask)
        return ask

    def cancel(self, ask: Ask) -> None:
        """Cancel a pending callback; does nothing if it has run."""
        if ask in self.wanted:
            self.wanted.remove(ask)
            self._release(ask, 0)

    def drop(self, query: RunningQuery) -> None:
        """Cancel all callbacks that wait for a query: it was paused, or has ended."""
        for ask in [ask for ask in self.wanted if query in ask.queries]:
            self.cancel(ask)

    def wake(self, query: RunningQuery) -> None:
        """Let a query that is not held read on, after rows were dropped from its queues."""
        if query not in self._rooms:
            self._intake.unblock(query, 0)

    def look(self, now: int) -> None:
        """Run the callbacks whose queries are quiescent; call it between two slices while any is pending."""
        for ask in tuple(self.wanted):
            if ask not in self.wanted:
                continue  # another callback cancelled it
            if not ask.holds:
                if ask.when is not None and not ask.when():
                    continue
                if ask in self.wanted:
                    self._hold(ask)
            if all(map(is_quiescent, ask.queries)):
                self.wanted.remove(ask)
                try:
                    ask.work()
                finally:
                    self._release(ask, now)

    def _hold(self, ask: Ask) -> None:
        """Set the room of the sources to 0: they wait as if the queues were full."""
        ask.holds = True
        for query in ask.queries:
            if query not in self._rooms:
                self._rooms[query] = {name: task.room for name, task in query.sources.items()}
            for task in query.sources.values():
                task.room = 0
                if self._intake.service is SourceService.PER_CLASS and task.state is OperatorState.READY:
                    task.state = OperatorState.SUSPEND  # the policy is notified again when it may read on
            query.blocked = True

    def _release(self, ask: Ask, now: int) -> None:
        for query in ask.queries:
            if query in self._rooms and not any(a.holds and query in a.queries for a in self.wanted):
                rooms = self._rooms.pop(query)
                for name, task in query.sources.items():
                    task.room = rooms.get(name, task.room)
                self._intake.unblock(query, now)
