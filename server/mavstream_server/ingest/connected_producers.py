"""The producers that are connected, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mavstream_protocol.wire.feed import CloseCode

if TYPE_CHECKING:
    from mavstream_server.ingest.producer_session import ProducerSession


class ConnectedProducers:
    """The producers that are connected. A name is on one connection at a time: the last one has it."""

    def __init__(self) -> None:
        self._by_name: dict[str, ProducerSession] = {}

    @property
    def producers(self) -> int:
        """How many are connected."""
        return len(self._by_name)

    def greeted(self, session: ProducerSession) -> None:
        """A connection has said whose it is."""
        before = self._by_name.get(session.producer)
        self._by_name[session.producer] = session
        if before is not None and before is not session:
            before.close(
                CloseCode.TAKEN, f"another connection of producer '{session.producer}' has taken over"
            )

    def left(self, session: ProducerSession) -> None:
        """A connection has ended."""
        if self._by_name.get(session.producer) is session:
            del self._by_name[session.producer]

    def credit_returned(self, stream: str) -> None:
        """Tell the producers of a stream that was held that they may go on."""
        for session in self._by_name.values():
            session.credit_returned(stream)
