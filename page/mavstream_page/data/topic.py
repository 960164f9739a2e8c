"""A topic: something that viewers watch, polled once for all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from mavstream import AsyncClient


class Topic(ABC):
    """A part of what the server reports, as it was polled last."""

    every: ClassVar[float] = 1.0
    """The least time between two polls, in seconds."""

    def __init__(self) -> None:
        self.polled: float | None = None
        """When it was polled last without an error, on the clock of the event loop."""
        self.error: str | None = None
        """Why the last poll failed although the server answered, such as a query that is gone."""

    @abstractmethod
    async def poll(self, client: AsyncClient, now: float) -> None:
        """Read the state from the server; raises MavstreamError."""
