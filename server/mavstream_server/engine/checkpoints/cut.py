"""What a checkpoint refers to in the logs; computed for every query, so it copies no state."""

from __future__ import annotations

from typing import NamedTuple

from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.reporting import oldest_arrival
from mavstream_server.engine.states import QueryState
from mavstream_server.operators.source import Source


class Cut(NamedTuple):
    """Where a query is between two slices."""

    positions: dict[str, int]
    """The position from which rows are read again, by stream; empty for a paused query."""
    offset: int
    """The offset of the next result row."""
    oldest_arrival: int | None
    """The lowest arrival time (ns) of the rows in the query: it, or one above it, may join stored tables."""
    paused: bool
    plan_version: int
    progress: str
    """Changes whenever the query has read a row or a mark, or has answered."""


def cut(query: RunningQuery) -> Cut:
    """Return where an active query is."""
    sources = [(stream, source) for stream, source in _sources(query) if not source.ended]
    positions: dict[str, int] = {}
    running = query.state is QueryState.RUNNING
    for stream, source in sources if running else ():
        position = source.cursor.position
        positions[stream] = min(position, positions.get(stream, position))
    offset, version = query.output.sink.offset, query.migrations.version
    progress = (
        tuple((source.cursor.position, source.frontier) for _, source in sources),
        len(sources),
        offset,
        query.network.account.rows,
        running,
        version,
    )
    return Cut(positions, offset, oldest_arrival((query,)), not running, version, repr(progress))


def _sources(query: RunningQuery) -> list[tuple[str, Source]]:
    """Return the sources that read for a query, with their streams: of a shared prefix, the pipeline's."""
    shared = {member.names[0]: member.running_source.work for member in query.shared}
    found = []
    for node in query.request.plan.sources:
        source = shared.get(node.name) or query.network.operators[node.name]
        assert isinstance(source, Source)
        found.append((node.stream, source))
    return found
