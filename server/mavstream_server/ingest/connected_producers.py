"""Connected producers: which connection a producer has now."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from mavstream_protocol.wire.feed import CloseCode

if TYPE_CHECKING:
    from mavstream_server.catalog.producers import ProducerRegistry
    from mavstream_server.ingest.producer_session import ProducerSession


class ConnectedProducers:
    """The connected producers by name. A producer has one connection; a newer one replaces the older."""

    def __init__(self, registry: ProducerRegistry) -> None:
        self._registry = registry
        self._by_name: dict[str, ProducerSession] = {}

    @property
    def names(self) -> Collection[str]:
        """The names of the connected producers."""
        return self._by_name.keys()

    @property
    def count(self) -> int:
        """The number of connected producers."""
        return len(self._by_name)

    def connected(self, session: ProducerSession) -> None:
        """Register a connection by the producer named in its hello; close the producer's older one.

        Raises Forbidden if the producer belongs to somebody else.
        """
        self._registry.claim(session.producer, session.principal)
        before = self._by_name.get(session.producer)
        self._by_name[session.producer] = session
        if before is not None and before is not session:
            before.close(
                CloseCode.TAKEN, f"another connection of producer '{session.producer}' has taken over"
            )

    def disconnected(self, session: ProducerSession) -> bool:
        """Remove a connection that has ended; returns whether it was its producer's current one."""
        if self._by_name.get(session.producer) is not session:
            return False
        del self._by_name[session.producer]
        self._registry.release(session.producer)
        return True

    def credit_returned(self, stream: str) -> None:
        """Let the producers of a stream that was held send again."""
        for session in self._by_name.values():
            session.credit_returned(stream)
