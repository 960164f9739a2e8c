"""Commands to recovered queries that wait until these have caught up.

A recovered query first computes again what it has computed before it died. What changes which rows take part
must not apply to these rows: it would contradict results that are stored already.
"""

from __future__ import annotations

from collections.abc import Callable

from mavstream_server.engine.engine import Engine
from mavstream_server.engine.process.messages import (
    PauseQuery,
    ReplacePlan,
    ResumeQuery,
    SetStopTime,
    SetTargets,
    ShedRows,
)
from mavstream_server.engine.query import RunningQuery


class DeferredCommands:
    """What is to be done with queries once they have caught up, in the order in which it was asked for."""

    def __init__(self, engine: Engine, caught_up: Callable[[str], bool]) -> None:
        self._engine = engine
        self._caught_up = caught_up
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def awaited_by(self, command: object) -> str | None:
        """Return the id of the query for which a command has to wait; None if it does not."""
        match command:
            case PauseQuery(id_) | ResumeQuery(id_) | SetStopTime(id_) | ReplacePlan(id_):
                return self._awaited(id_)
            case SetTargets(id_) if _sheds(self._engine.queries.get(id_)):
                return self._awaited(id_)
            case ShedRows(id_, share) if share or _sheds(self._engine.queries.get(id_)):
                return self._awaited(id_)
        return None

    def _awaited(self, id_: str) -> str | None:
        return id_ if id_ in self._waiting or not self._caught_up(id_) else None

    def add(self, id_: str, work: Callable[[], None]) -> None:
        """Call `work` once a query has caught up, has ended or was removed."""
        self._waiting.setdefault(id_, []).append(work)

    def run(self) -> None:
        """Do what waits for queries that have caught up by now."""
        for id_ in [id_ for id_ in self._waiting if self._caught_up(id_)]:
            for work in self._waiting.pop(id_):
                work()


def _sheds(query: RunningQuery | None) -> bool:
    return query is not None and any(source.shedder is not None for source in query.network.sources)
