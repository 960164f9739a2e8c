"""Recovered queries that compute their stored results again: when they have caught up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from mavstream_server.engine.checkpoints.cut import cut
from mavstream_server.engine.checkpoints.records import CheckpointRecord, CheckpointRecords
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.states import QueryState
from mavstream_server.operators.result_source import ResultSource

_log = logging.getLogger(__name__)

Diverged = Callable[[RunningQuery, int], None]
"""Called with a recovered query and the number of its stored results that were not computed again."""


class CatchingUp:
    """Ends the replay of recovered queries once they have read all that they had read before."""

    def __init__(self, engine: Engine, records: CheckpointRecords, diverged: Diverged | None) -> None:
        self._engine = engine
        self._records = records
        self._diverged = diverged

    def check(self, ids: Iterable[str]) -> None:
        """End the replays of these queries that are complete, and report those that left results over."""
        for id_ in ids:
            record, query = self._records[id_], self._engine.queries.get(id_)
            if record.catch_up is None or query is None or not query.active:
                continue
            if self._behind(query, record) or _in_flight(query):
                continue
            replay, query.output.replay, record.catch_up = query.output.replay, None, None
            if replay is not None:
                self._report(query, replay.remaining)

    def under_way(self, id_: str) -> bool:
        """Whether a query was recovered and has not caught up yet."""
        record, query = self._records.get(id_), self._engine.queries.get(id_)
        return record is not None and record.catch_up is not None and query is not None and query.active

    def _report(self, query: RunningQuery, remaining: int) -> None:
        fields = {"query": query.id, "rows": remaining}
        _log.error("recovery did not repeat all stored results", extra={"fields": fields})
        if self._diverged is not None:
            self._diverged(query, remaining)

    def _behind(self, query: RunningQuery, record: CheckpointRecord) -> bool:
        """Whether a query has not read all that it may have read before its recovery."""
        if query.state is QueryState.PAUSED:
            return False  # it was paused then, too
        positions, ends = cut(query).positions, record.catch_up or {}
        if any(positions.get(name, end) < end for name, end in ends.items()):
            return True
        # Of the results of others it has also read marks, which these give again when they have caught up.
        below = (self._records.get(id_) for id_ in query.request.plan.upstream_queries.values())
        if any(one is not None and one.catch_up is not None for one in below):
            return True
        results = [source for source in query.network.sources if isinstance(source, ResultSource)]
        return any(
            source.frontier.watermark
            < record.marks.setdefault(source.name, source.results.reached().watermark)
            for source in results
        )


def _in_flight(query: RunningQuery) -> bool:
    """Whether rows that a query has read are still between its operators, or in a shared pipeline."""
    if query.network.account.rows or query.has_unfinished_work:
        return True
    if any(len(queue) for operator in query.network.operators.values() for queue in operator.inputs):
        return True
    return any(not member.pipeline.is_quiescent for member in query.shared)
