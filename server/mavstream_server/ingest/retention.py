"""Retention and quotas of streams: removes expired segments and reports when there is no space."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from mavstream_protocol.quantities import format_duration, format_size
from mavstream_protocol.streams import StreamSpec
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.clock import Clock
from mavstream_server.core.errors import OverQuota, ServiceError, StorageFull
from mavstream_server.ingest.stream_writer import StreamWriter
from mavstream_server.log import LogWriter, Retention

_LOG = logging.getLogger("mavstream.streams")


class Readers(Protocol):
    """What queries still have to read of the streams; segments they need are not removed."""

    def needed_position(self, stream: str) -> int | None:
        """Return the lowest position of a stream that a query still needs, None if no query reads it."""

    def held_by(self, stream: str) -> str | None:
        """Return the id of the query that needs that position."""

    def read_position(self, stream: str) -> int | None:
        """Return the position of the most advanced query on a stream, None if no query reads it."""

    def waits_for_time(self, stream: str) -> bool:
        """Return whether a query needs a stream's time to advance even without rows."""


class NoReaders:
    """Streams that no query reads."""

    def needed_position(self, stream: str) -> int | None:
        """Return None: nothing is needed."""
        return None

    def held_by(self, stream: str) -> str | None:
        """Return None: no query needs anything."""
        return None

    def read_position(self, stream: str) -> int | None:
        """Return None: no query reads."""
        return None

    def waits_for_time(self, stream: str) -> bool:
        """Return False: no query waits."""
        return False


class StreamRetention:
    """Removes segments that need not be kept, and reports streams that are out of space."""

    def __init__(
        self,
        logs: Mapping[str, StreamWriter],
        catalog: Catalog,
        clock: Clock,
        readers: Readers,
        max_disk_bytes: int | None,
    ) -> None:
        self._logs = logs
        self._catalog = catalog
        self._clock = clock
        self._readers = readers
        self._limit = max_disk_bytes
        self.disk = 0
        """Bytes of all stream logs; updated by appends and removals, recounted now and then."""

    def count(self) -> None:
        """Recount `disk`."""
        self.disk = sum(log.nbytes for log in self._logs.values())

    def limited(self, log: StreamWriter) -> bool:
        """Return whether a stream can run out of space at all."""
        return log.spec.quota is not None or self._limit is not None

    def shortage(self, log: StreamWriter, cost: int) -> ServiceError | None:
        """Return why there is no space for so many more bytes, after removing what may go; None if there is.

        A stream with a single segment always accepts rows: that segment is never removed, so waiting would
        not help. A stream can therefore exceed its quota by one segment and one frame.
        """
        if log.writer is None:
            return log.failure
        quota = log.spec.quota
        if quota is not None and log.nbytes + cost > quota and len(log.writer.segments) > 1:
            self.retain(log, at_most(log, quota - cost))
            if log.nbytes + cost > quota and len(log.writer.segments) > 1:
                return over_quota(log, self.held_by(log, cost))
        if self._limit is not None and self.disk + cost > self._limit:
            self._shrink_all(self.disk + cost - self._limit)
            if self.disk + cost > self._limit:
                return StorageFull(
                    f"all streams together have {format_size(self.disk)} on disk, the limit is "
                    f"{format_size(self._limit)}: remove streams, or raise MAVSTREAM_MAX_DISK_BYTES",
                    code="disk_limit",
                )
        return None

    def enforce(self, log: StreamWriter) -> None:
        """Remove the segments beyond a stream's retention that no query needs."""
        retention = declared_retention(log.spec)
        if retention is not None and log.writer is not None:
            self.retain(log, retention)
        if log.save_failed:
            self.save_sequences(log)

    def retain(self, log: StreamWriter, retention: Retention) -> None:
        """Remove the segments that a retention allows to remove and no query needs."""
        assert log.writer is not None
        if not is_expired(log.writer, retention, self._clock.now()):
            return
        removed = retention.apply(log.writer, self._readers.needed_position(log.spec.name), self._clock.now())
        if removed.segments:
            self.disk -= removed.nbytes
            # When the log starts its next segment, it forgets producers without frames in it.
            self.save_sequences(log)

    def save_sequences(self, log: StreamWriter) -> None:
        """Write the last sequences of a stream's producers to the catalog; a failure is retried later."""
        log.save_failed = True
        try:
            self._catalog.save_sequences(log.spec.name, {p: log.last[p] for p in log.unsaved})
        except ServiceError as error:
            _LOG.error("sequences not saved", extra={"stream": log.spec.name, "reason": error.detail})
            return
        log.unsaved.clear()
        log.save_failed = False

    def held_by(self, log: StreamWriter, cost: int = 0) -> str | None:
        """Return the query that keeps the oldest segment from being removed, if any.

        `cost` is the number of bytes that the stream needs space for.
        """
        writer, spec = log.writer, log.spec
        if writer is None or len(writer.segments) < 2:
            return None
        limit = declared_retention(spec) if spec.quota is None else at_most(log, spec.quota - cost)
        if limit is None or not is_expired(writer, limit, self._clock.now()):
            return None
        needed = self._readers.needed_position(spec.name)
        if needed is None or needed > writer.segments[1].position:
            return None
        return self._readers.held_by(spec.name)

    def _shrink_all(self, excess: int) -> None:
        """Remove segments of streams without a declared retention, largest stream first."""
        self.count()
        for log in sorted(self._logs.values(), key=lambda log: -log.nbytes):
            if excess <= 0:
                return
            if log.writer is not None and log.spec.retention is None:
                before = log.nbytes
                self.retain(log, at_most(log, before - excess))
                excess -= before - log.nbytes


def declared_retention(spec: StreamSpec) -> Retention | None:
    """Return the declared retention of a stream; None if it keeps everything while there is space."""
    if spec.retention is None:
        return None
    time = spec.retention.time
    return Retention(None if time is None else time * 1000, spec.retention.bytes)


def at_most(log: StreamWriter, nbytes: int) -> Retention:
    """Return the retention that shrinks a stream to a size, as far as its declared retention allows.

    A retention in bytes is kept to the nearest segment, because it may be as large as the quota; one in time
    is kept exactly. Without one the oldest rows go.
    """
    enough = max(nbytes - log.options.segment_bytes, 0)
    declared = declared_retention(log.spec)
    if declared is None:
        return Retention(max_bytes=enough)
    if declared.max_bytes is None:
        return declared
    return Retention(declared.max_age_ns, min(declared.max_bytes, enough))


def is_expired(writer: LogWriter, retention: Retention, now: int) -> bool:
    """Return whether the oldest segment may be removed unless a query needs it."""
    if len(writer.segments) < 2:
        return False
    first, second = writer.segments[:2]
    if retention.max_age_ns is not None and now - second.arrival > retention.max_age_ns:
        return True
    rest = writer.nbytes - (second.offset - first.offset)
    return retention.max_bytes is not None and rest >= retention.max_bytes


def over_quota(log: StreamWriter, holder: str | None) -> OverQuota:
    """Return the error for a stream that has reached its quota."""
    spec = log.spec
    assert spec.quota is not None
    if holder is not None:
        why = f"query '{holder}' has not read its oldest rows yet: wait for it, pause or stop it"
    elif spec.retention is not None and spec.retention.time is not None:
        why = f"its retention keeps rows for {format_duration(spec.retention.time)}: wait, or keep less"
    else:
        why = "wait until its rows are read"
    return OverQuota(
        f"stream '{spec.name}' has {format_size(log.nbytes)} on disk, its quota is "
        f"{format_size(spec.quota)}, and {why}, or make the quota larger",
        held_by=holder,
    )
