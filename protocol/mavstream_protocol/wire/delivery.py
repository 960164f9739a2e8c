"""What survives a crash of the server: a query's last checkpoint and its delivery guarantee."""

from __future__ import annotations

from enum import StrEnum

from pydantic import ConfigDict

from mavstream_protocol.described import Described

_CONFIG = ConfigDict(frozen=True)


class CheckpointInfo(Described):
    """The last checkpoint of a query, and its last recovery."""

    model_config = _CONFIG
    taken: str | None
    """When it was taken; null if the query has none."""
    age_s: float | None
    """Seconds since then. A query that has not changed gets no new checkpoint."""
    bytes: int | None
    """Bytes on disk."""
    duration_ms: float | None
    """How long writing it took; null for one that an earlier engine process wrote."""
    replayed_rows: int
    """Results that were computed again, and not delivered again, at the last recovery."""
    replaying: bool
    """Whether results from before the recovery are still being computed again."""
    failures: int
    """Attempts to write a checkpoint that failed since the engine started."""
    error: str | None
    """Why the last attempt failed; null if it succeeded."""


class DeliveryGuarantee(StrEnum):
    """What holds for a query's answers after the death of any process."""

    EXACTLY_ONCE = "exactly_once"
    """Every acknowledged row takes part exactly once, and every subscriber gets every answer exactly once."""
    AT_MOST_ONCE = "at_most_once"
    """The query starts again with new rows and empty state, under a new epoch: answers may be missing."""


class Synced(StrEnum):
    """What is synced to disk before it counts, and so survives power loss."""

    ROWS = "rows"
    """Acknowledged rows."""
    RESULTS = "results"
    """Delivered results."""
    CHECKPOINTS = "checkpoints"


class QueryDelivery(Described):
    """The delivery guarantee in force for a query."""

    model_config = ConfigDict(
        **_CONFIG,
        json_schema_extra={
            "examples": [
                {
                    "guarantee": "exactly_once",
                    "detail": "after a crash the query continues from its last checkpoint",
                    "survives_power_loss": ["rows", "results", "checkpoints"],
                }
            ]
        },
    )
    guarantee: DeliveryGuarantee | None
    """What holds after a crash; null if no engine runs the query, or its metrics are not known."""
    detail: str
    """Why this is the guarantee."""
    survives_power_loss: tuple[Synced, ...]
    """With delivery `sync`: acknowledged rows, delivered results, and checkpoints if they are on.

    Otherwise nothing: after power loss queries continue under new epochs.
    """
