"""Trials of queries: what a query would answer on the last rows of its streams."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from mavstream_protocol.described import Described
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.streams import FieldSpec

MOST_TRIAL_ROWS = 100_000


class TrialSpec(Described):
    """A query to be tried: a plan, or SQL."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        json_schema_extra={
            "examples": [{"sql": "SELECT * FROM readings WHERE temperature > 30", "rows": 1000, "limit": 20}]
        },
    )
    plan: Plan | None = None
    """The plan; or `sql`, one of the two."""
    sql: str | None = None
    """The query as SQL."""
    rows: Annotated[int, Field(ge=1, le=MOST_TRIAL_ROWS)] = 1000
    """The last rows of each stream that are read."""
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    """The most answers that are returned: the first ones."""


class TrialResult(Described):
    """What a query answered on the last rows of its streams."""

    model_config = ConfigDict(frozen=True)
    fields: tuple[FieldSpec, ...]
    rows: list[dict[str, Any]]
    """The first answers."""
    results: int
    """The number of all answers. Windows that are open at the end of the streams have not answered."""
    read: dict[str, int]
    """Rows that were read, by stream."""
    complete: bool
    """Whether all of them were processed in the time of a trial."""
    seconds: float
    """How long it ran."""
