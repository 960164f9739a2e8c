"""What queries still need of the versions of a table: by rows inside of them, and by results to be read."""

from __future__ import annotations

from collections.abc import Iterable

from mavstream_server.engine.checkpoints.records import CheckpointRecords
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.process.messages import TableNeed
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.reporting import oldest_arrival
from mavstream_server.engine.states import QueryState
from mavstream_server.operators.result_source import ResultSource


def table_need(engine: Engine, records: CheckpointRecords, table: str) -> TableNeed:
    """Return what may still be joined with a table, now or after a recovery.

    Through chains, too: a table is joined by the original arrival of rows, so the queries below a join count,
    and the results that queries above them have not read.
    """
    joining = [one for one in engine.queries.values() if one.active and table in one.request.plan.tables]
    ids = {query.id for query in joining}
    read = set[str]()
    for query in joining:
        read |= engine.chains.reaching(query)
    # Nothing is known of a query that was not started yet, except which results it will read.
    for id_ in engine.chains.expected:
        read |= {id_, *engine.chains.reaching(engine.queries.get(id_))}
    ids |= read
    concerned = [engine.queries[id_] for id_ in ids if id_ in engine.queries]
    found = (oldest_arrival(concerned), records.oldest_arrival(ids), _oldest_mark(concerned))
    held = records.held_positions()
    unread = {id_: _unread(engine, held, id_) for id_ in read if id_ in engine.chains}
    return TableNeed(
        min((arrival for arrival in found if arrival is not None), default=None),
        {id_: offset for id_, offset in unread.items() if offset is not None},
    )


def _oldest_mark(queries: Iterable[RunningQuery]) -> int | None:
    """Return the lowest arrival time of the marks of upstream queries that were not read yet."""
    return min(
        (
            source.results.reached().arrival
            for query in queries
            if query.state is QueryState.RUNNING
            for source in query.network.sources
            if isinstance(source, ResultSource) and source.marked and not source.ended
        ),
        default=None,
    )


def _unread(engine: Engine, held: dict[str, tuple[int, str]], id_: str) -> int | None:
    """Return the offset of the first result of a query that is still to be read; None if there is none."""
    chains = engine.chains
    name = chains.name(id_)
    offsets = [chains.needed(id_), held.get(name, (None,))[0]]
    lowest = min((offset for offset in offsets if offset is not None), default=None)
    return None if lowest is None or lowest >= engine.intake.readers[name].end else lowest
