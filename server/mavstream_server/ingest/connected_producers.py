"""Connected producers: which connection a producer has now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mavstream_protocol.wire.feed import CloseCode

if TYPE_CHECKING:
    from mavstream_server.ingest.producer_session import ProducerSession


class ConnectedProducers:
    """The connected producers by name. A producer has one connection; a newer one replaces the older."""

    def __init__(self) -> None:
        self._by_name: dict[str, ProducerSession] = {}

    @property
    def count(self) -> int:
        """The number of connected producers."""
        return len(self._by_name)

    def connected(self, session: ProducerSession) -> None:
        """Register a connection by the producer named in its hello; close the producer's older one."""
        before = self._by_name.get(session.producer)
        self._by_name[session.producer] = session
        if before is not None and before is not session:
            before.close(
                CloseCode.TAKEN, f"another connection of producer '{session.producer}' has taken over"
            )

    def disconnected(self, session: ProducerSession) -> None:
        """Remove a connection that has ended."""
        if self._by_name.get(session.producer) is session:
            del self._by_name[session.producer]

    def credit_returned(self, stream: str) -> None:
        """Let the producers of a stream that was held send again."""
        for session in self._by_name.values():
            session.credit_returned(stream)
