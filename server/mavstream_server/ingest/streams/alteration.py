"""Alteration: a stream gets more fields or other limits while its producers and readers go on."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

from mavstream_protocol.schema import Field
from mavstream_protocol.typed_plan import StreamShape
from mavstream_protocol.wire.stream_change import StreamChange
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.errors import Conflict, storage_problem
from mavstream_server.core.event_loop.background import Background
from mavstream_server.ingest.flusher import Flusher
from mavstream_server.ingest.stream_writer import StreamWriter
from mavstream_server.ingest.streams.changes import changed_spec, changes_between, with_fields
from mavstream_server.log import LogError


class StreamAlteration:
    """Changes streams: first in the catalog, then in their logs.

    If the process dies in between, `complete` adds the fields when the stream is opened again.
    """

    def __init__(
        self,
        shapes: MutableMapping[str, StreamShape],
        catalog: Catalog,
        flusher: Flusher,
        background: Background,
    ) -> None:
        """`shapes` are those of all streams."""
        self._shapes = shapes
        self._catalog = catalog
        self._flusher = flusher
        self._background = background

    def change(self, log: StreamWriter, change: StreamChange) -> tuple[str, ...]:
        """Change a stream and return what is different, see `changes_between`; empty if nothing is.

        Raises Conflict, InvalidChange, StorageFull, StorageFailed.
        """
        before, after = log.spec, changed_spec(log.spec, change)
        if after == before:
            return ()
        added = after.schema().fields[len(before.fields) :]
        if added:
            self._prepare(log)
        self._catalog.change_stream(after)
        problem = self._add_fields(log, added) if added else None
        if problem is not None and log.writer is not None and log.fields == log.schema.fields:
            self._catalog.change_stream(before)
            raise problem
        log.use(after)
        log.widen_queue(added)
        self._shapes[after.name] = log.shape
        if added and log.failure is not None:
            raise log.failure  # the fields are added when it can be opened again
        if log.held is not None:
            self._flusher.release(log)
        return changes_between(before, after)

    def complete(self, log: StreamWriter) -> None:
        """Let the specification of a stream have the fields that its log has got.

        After power loss the log may be ahead of the catalog.
        """
        added = log.fields[len(log.schema) :]
        if added:
            spec = with_fields(log.spec, added)
            self._catalog.change_stream(spec)
            log.use(spec)

    def _prepare(self, log: StreamWriter) -> None:
        """Append what is queued and wait for the disk; raises Conflict, StorageFull, StorageFailed."""
        if log.completed:
            raise Conflict(
                f"stream '{log.spec.name}' was completed and takes no more rows, so that it can get no more "
                "fields: create another stream",
                code="stream_complete",
            )
        self._background.settle()
        self._flusher.flush()
        self._background.settle()
        if log.failure is not None:
            raise log.failure

    def _add_fields(self, log: StreamWriter, added: Sequence[Field]) -> Exception | None:
        """Add fields to a log, which begins a segment with them; returns what went wrong."""
        assert log.writer is not None
        try:
            log.writer.add_fields(added)
        except (OSError, LogError) as error:
            log.reopen()
            return storage_problem(f"stream '{log.spec.name}'", error)
        return None
