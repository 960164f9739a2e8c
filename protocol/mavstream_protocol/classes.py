"""Query classes: groups of queries that matter equally."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, StrictInt

from mavstream_protocol.described import Described
from mavstream_protocol.names import Name
from mavstream_protocol.quantities import PositiveDuration

DEFAULT_CLASS = "default"
"""The class of queries that name none."""

LOWEST_PRIORITY = 1
HIGHEST_PRIORITY = 1000


class ClassBody(Described):
    """A class as `PUT /v1/classes/{name}` takes it: the address names it."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        json_schema_extra={
            "examples": [{"priority": 6, "latency": "20ms", "description": "Wakes people up"}]
        },
    )

    name: Name | None = None
    """The name of the address, if it is given at all."""
    # 1000 steps let priorities be ratios (6:3:1) with room to insert; the bound ensures that
    # one class cannot reduce the shares of the others to nothing in the cycle of a broadcast disk.
    priority: Annotated[StrictInt, Field(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY)] = LOWEST_PRIORITY
    """Priority from 1 to 1000; class policies divide processor time in proportion to it."""
    latency: PositiveDuration | None = None
    """Latency target of its queries that have none of their own; null for none.

    It limits how long sources wait for more rows, and the policy `deadline` schedules by it. The optimizer
    and admission control judge a query only by its own targets.
    """
    description: Annotated[str, Field(max_length=1000)] = ""
    """Description for people."""


class QueryClass(ClassBody):
    """A class of queries, its priority and its latency target."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "alarms", "priority": 6, "latency": "20ms", "description": "Wakes people up"}
            ]
        },
    )

    name: Name
    """Identifier of at most 64 characters."""
