"""Appends with an idempotency key: a repeated one is answered as the first, also after a crash.

The record in the catalog is written before the rows, and the frame in the log carries its stamp. So after a
crash the log says whether the rows are there.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from pathlib import Path
from typing import Any

from mavstream_server.catalog.keyed_appends import AppendRecords, KeyedAppend
from mavstream_server.core.clock import Clock
from mavstream_server.core.errors import Conflict, TooMany
from mavstream_server.ingest.append_handle import Accepted
from mavstream_server.ingest.stream_store import StreamStore
from mavstream_server.log import LogError, LogReader

_LOG = logging.getLogger("mavstream.streams")
KEPT_US = 24 * 3600 * 1_000_000
"""How long a key is remembered, in microseconds."""
MOST_KEYS = 1_000_000
_PERIOD = 60_000_000_000


class IdempotentAppends:
    """Appends rows once per key and stream."""

    def __init__(self, streams: StreamStore, records: AppendRecords, directory: Path, clock: Clock) -> None:
        self._streams = streams
        self._records = records
        self._directory = directory
        self._clock = clock
        self._running: dict[tuple[str, str], asyncio.Task[tuple[int, bool]]] = {}
        self._expired = clock.monotonic()
        for record in records.unknown():  # those that were in flight when the server died
            try:
                self._settle(record, self._position_of(record))
            except LogError as error:
                _LOG.error(
                    "append with an idempotency key cannot be looked up",
                    extra={"stream": record.stream, "reason": str(error)},
                )

    def expire(self) -> None:
        """Forget keys that are older than a day; once a minute."""
        now = self._clock.monotonic()
        if now - self._expired >= _PERIOD:
            self._expired = now
            self._records.remove_before(self._clock.now() // 1000 - KEPT_US)

    async def append(
        self, stream: str, key: str, fingerprint: str, batch: Any, nbytes: int
    ) -> tuple[int, bool]:
        """Append rows unless they were appended before; returns their position, and whether they are new.

        Raises Conflict if the key was used with another body, TooMany, and what `Enqueuer.ingest` raises.
        """
        known = self._records.find(stream, key)
        if known is not None and known.fingerprint != fingerprint:
            raise Conflict(
                f"the idempotency key was used for other rows of stream '{stream}': use a new one for each",
                code="idempotency_key_reused",
            )
        if known is not None and known.position is not None:
            return known.position, False
        running = self._running.get((stream, key))
        if running is not None:
            return (await asyncio.shield(running))[0], False
        # A task of its own: if the request is cancelled, the rows that are queued must still be recorded.
        task = asyncio.create_task(self._append_once(known, stream, key, fingerprint, batch, nbytes))
        self._running[stream, key] = task
        task.add_done_callback(lambda _: self._running.pop((stream, key)))
        return await asyncio.shield(task)

    async def _append_once(
        self, known: KeyedAppend | None, stream: str, key: str, fingerprint: str, batch: Any, nbytes: int
    ) -> tuple[int, bool]:
        if known is not None:
            # An earlier append failed: usually nothing was written, but only the log knows.
            position = await asyncio.to_thread(self._position_of, known)
            self._settle(known, position)
            if position is not None:
                return position, False
        if self._records.count >= MOST_KEYS:
            raise TooMany(
                f"{MOST_KEYS} idempotency keys were used within a day, which is the limit: append without "
                "one, or name a producer",
                code="too_many_keys",
            )
        begun, at = self._streams.info(stream).position, self._clock.now() // 1000
        stamp = secrets.randbits(62) + 1
        record = KeyedAppend(stream, key, fingerprint, stamp, begun, batch.num_rows, None, at)
        self._records.add(record)
        outcome = await self._streams.enqueuer.ingest(None, stream, 0, batch, nbytes, stamp=stamp)
        assert isinstance(outcome, Accepted)
        self._settle(record, outcome.position)
        return outcome.position, True

    def _settle(self, record: KeyedAppend, position: int | None) -> None:
        """Store where the rows are, or that they have to be sent again."""
        if position is None:
            self._records.remove(record)
        else:
            self._records.complete(record, position)

    def _position_of(self, record: KeyedAppend) -> int | None:
        """Return where the rows of an append are in the log, or None."""
        path = self._directory / record.stream
        if not path.exists():
            return None
        reader = LogReader(path)
        cursor = reader.cursor(max(record.begun, reader.begin))
        while (step := cursor.next()) is not None:
            frame = step[0]
            if frame.producer == 0 and frame.sequence == record.stamp:
                return frame.first_position
        return None
