"""What of a stream is kept: the promise of its retention, and what may go when space is short."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from mavstream_protocol.quantities import format_duration, format_size
from mavstream_protocol.streams import StreamSpec
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.clock import Clock
from mavstream_server.core.errors import OverQuota, ServiceError, StorageFull
from mavstream_server.ingest.stream_writer import StreamWriter
from mavstream_server.log import LogWriter, Retention

_LOG = logging.getLogger("mavstream.streams")

Needed = Callable[[str], int | None]
"""The least position of a stream that a query still needs, None if no query reads it."""
Holder = Callable[[str], str | None]
"""The query that needs that position."""


class StreamRetention:
    """Removes what need not be kept, and tells where there is no room."""

    def __init__(
        self, logs: Mapping[str, StreamWriter], catalog: Catalog, clock: Clock, max_disk_bytes: int | None
    ) -> None:
        self._logs = logs
        self._catalog = catalog
        self._clock = clock
        self._limit = max_disk_bytes
        self.needed: Needed = lambda stream: None
        self.holder: Holder = lambda stream: None
        self.disk = 0
        """Bytes of all stream logs; between two counts it follows what is appended and removed."""

    def count(self) -> None:
        """Work out `disk` anew."""
        self.disk = sum(log.nbytes for log in self._logs.values())

    def limited(self, log: StreamWriter) -> bool:
        """Return whether a stream can run out of room at all."""
        return log.spec.quota is not None or self._limit is not None

    def shortage(self, log: StreamWriter, cost: int) -> ServiceError | None:
        """Return why there is no room for so many bytes more, after removing what may go; None if there is.

        A stream that has one segment only gets its rows: that one never goes, so waiting would not help.
        It can so be larger than its quota by one segment and one frame.
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

    def keep_promise(self, log: StreamWriter) -> None:
        """Remove what is beyond a stream's retention and what no query needs."""
        retention = declared_retention(log.spec)
        if retention is not None and log.writer is not None:
            self.retain(log, retention)
        if log.owing:
            self.keep_sequences(log)

    def retain(self, log: StreamWriter, retention: Retention) -> None:
        """Remove what a retention lets go and no query needs."""
        assert log.writer is not None
        if not is_expired(log.writer, retention, self._clock.now()):
            return
        removed = retention.apply(log.writer, self.needed(log.spec.name), self._clock.now())
        if removed.segments:
            self.disk -= removed.nbytes
            # The log forgets producers of whom it has no frames, when it starts its next segment.
            self.keep_sequences(log)

    def keep_sequences(self, log: StreamWriter) -> None:
        """Write into the catalog how far a stream's producers are; what fails is tried again later."""
        log.owing = True
        try:
            self._catalog.keep_sequences(log.spec.name, {p: log.last[p] for p in log.unkept})
        except ServiceError as error:
            _LOG.error("sequences not kept", extra={"stream": log.spec.name, "reason": error.detail})
            return
        log.unkept.clear()
        log.owing = False

    def held_by(self, log: StreamWriter, cost: int = 0) -> str | None:
        """Return the query that keeps the oldest segment from being removed, if one does.

        `cost` is what the stream has to find room for.
        """
        writer, spec = log.writer, log.spec
        if writer is None or len(writer.segments) < 2:
            return None
        limit = declared_retention(spec) if spec.quota is None else at_most(log, spec.quota - cost)
        if limit is None or not is_expired(writer, limit, self._clock.now()):
            return None
        needed = self.needed(spec.name)
        if needed is None or needed > writer.segments[1].position:
            return None
        return self.holder(spec.name)

    def _shrink_all(self, excess: int) -> None:
        """Take from streams that promise nothing, largest first."""
        self.count()
        for log in sorted(self._logs.values(), key=lambda log: -log.nbytes):
            if excess <= 0:
                return
            if log.writer is not None and log.spec.retention is None:
                before = log.nbytes
                self.retain(log, at_most(log, before - excess))
                excess -= before - log.nbytes


def declared_retention(spec: StreamSpec) -> Retention | None:
    """Return the retention of a stream; None if it keeps everything while there is space."""
    if spec.retention is None:
        return None
    time = spec.retention.time
    return Retention(None if time is None else time * 1000, spec.retention.bytes)


def at_most(log: StreamWriter, nbytes: int) -> Retention:
    """Return the retention under which a stream shrinks to a size, as far as its promise lets it.

    A promise in bytes is kept to the nearest segment, because it may be as large as the quota; one in time
    is kept as it stands. Without a promise the oldest rows go.
    """
    enough = max(nbytes - log.options.segment_bytes, 0)
    promise = declared_retention(log.spec)
    if promise is None:
        return Retention(max_bytes=enough)
    if promise.max_bytes is None:
        return promise
    return Retention(promise.max_age_ns, min(promise.max_bytes, enough))


def is_expired(writer: LogWriter, retention: Retention, now: int) -> bool:
    """Return whether the oldest segment would go if no query needed it."""
    if len(writer.segments) < 2:
        return False
    first, second = writer.segments[:2]
    if retention.max_age_ns is not None and now - second.arrival > retention.max_age_ns:
        return True
    rest = writer.nbytes - (second.offset - first.offset)
    return retention.max_bytes is not None and rest >= retention.max_bytes


def over_quota(log: StreamWriter, holder: str | None) -> OverQuota:
    """Return the problem of a stream that is as large as it may be."""
    spec = log.spec
    assert spec.quota is not None
    if holder is not None:
        why = f"query '{holder}' has not read its oldest rows yet: wait for it, pause or stop it"
    elif spec.retention is not None and spec.retention.time is not None:
        why = f"its retention keeps rows for {format_duration(spec.retention.time)}: wait, or keep less"
    else:
        why = "wait until rows were read"
    return OverQuota(
        f"stream '{spec.name}' has {format_size(log.nbytes)} on disk, its quota is "
        f"{format_size(spec.quota)}, and {why}, or make the quota larger",
        held_by=holder,
    )
