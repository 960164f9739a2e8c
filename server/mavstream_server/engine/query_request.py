"""What the engine needs to run a query, without the engine: the API process imports it, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.planning.run_options import RunOptions

_DEFAULTS = RunOptions()


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """What the engine needs to run a query. Plans are parsed and typed elsewhere."""

    id: str
    plan: TypedPlan
    class_name: str = "default"
    options: RunOptions = _DEFAULTS
    earliest: bool = False
    """Start at the first row that the streams retain instead of at the next one to arrive."""
    latency_target: int | None = None
    """Its own latency target (us); None if that of its class applies."""
    queue_limit: int | None = None
    """Rows in all queues at which the sources stop reading; None for the engine's default."""
    memory_limit: int | None = None
    """Resident bytes beyond which the query fails."""
    positions: Mapping[str, int] | None = None
    """Start positions, by stream; streams that are not named start according to `earliest`."""
    shares: bool = True
    """Whether it may share operators with other queries."""
