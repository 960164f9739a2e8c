"""What is known of a query that a runner runs, outside of the server."""

from __future__ import annotations

from pydantic import ConfigDict

from mavstream_protocol.described import Described


class QueryRun(Described):
    """The run of a query outside of the server."""

    model_config = ConfigDict(frozen=True)
    batch: int
    """Number of the last batch that was published."""
    runner: str | None = None
    """The runner that was heard of last since the server started."""
    heard: str | None = None
    """When it was."""
    positions: dict[str, int] = {}
    """By stream, the lowest position that later batches read."""
    progress: dict[str, float] = {}
    """Numbers about the run, as its runner has reported them."""
