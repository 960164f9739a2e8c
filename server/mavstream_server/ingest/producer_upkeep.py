"""Upkeep of producers: records which are in use, removes those that are not, and describes them."""

from __future__ import annotations

import logging

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.instants import format_instant
from mavstream_protocol.wire.resources import ProducerInfo
from mavstream_server.catalog.producers import ProducerRegistry
from mavstream_server.core.clock import Clock
from mavstream_server.core.errors import Conflict
from mavstream_server.ingest.connected_producers import ConnectedProducers
from mavstream_server.ingest.stream_store import StreamStore

_LOG = logging.getLogger("mavstream.streams")
_PERIOD = 60_000_000_000
"""Interval between two rounds, in nanoseconds."""


class ProducerUpkeep:
    """Removes producers on request, and those that were not used for `expiry` microseconds."""

    def __init__(
        self,
        streams: StreamStore,
        registry: ProducerRegistry,
        connected: ConnectedProducers,
        clock: Clock,
        expiry: int,
    ) -> None:
        self._streams = streams
        self._registry = registry
        self._connected = connected
        self._clock = clock
        self._expiry = expiry
        self._touched: set[str] = set()
        self._last: int | None = None

    def touch(self, name: str) -> None:
        """Take note that a producer was used."""
        self._touched.add(name)

    def run(self) -> None:
        """Run a round if one is due: once a minute."""
        now = self._clock.monotonic()
        if self._last is None or now - self._last >= _PERIOD:
            self._last = now
            self.expire()

    def expire(self) -> None:
        """Record the producers that are in use, and remove those that have expired."""
        self._registry.used({*self._touched, *self._connected.names})
        self._touched.clear()
        for name in self._registry.unused_since(self._clock.now() // 1000 - self._expiry):
            try:
                self.remove(name)
            except MavstreamError as error:
                _LOG.warning("producer not removed", extra={"producer": name, "reason": str(error)})
            else:
                _LOG.info("producer expired", extra={"producer": name})

    def remove(self, name: str) -> None:
        """Remove a producer; it no longer holds watermarks. Raises NotFound, Conflict while it is used."""
        number = self._registry.number(name)
        if number is not None:
            if name in self._connected.names:
                raise Conflict(
                    f"producer '{name}' is connected: disconnect it first", code="producer_connected"
                )
            self._streams.forget_producer(name, number)
        self._registry.remove(name)
        self._touched.discard(name)

    def infos(self, names: list[str]) -> list[ProducerInfo]:
        """Describe producers."""
        used = self._registry.last_used()
        return [
            ProducerInfo(
                name=name,
                owner=self._registry.owner(name),
                connected=name in self._connected.names,
                last_used=format_instant(used[name]),
                sequences=self._streams.sequences_of(self._registry.names[name]),
            )
            for name in names
        ]
