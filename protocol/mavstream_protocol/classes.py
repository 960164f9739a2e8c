"""Query classes: groups of queries that matter equally."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from mavstream_protocol.names import Name

DEFAULT_CLASS = "default"
"""The class of queries that name none."""

LOWEST_PRIORITY = 1
HIGHEST_PRIORITY = 1000


class QueryClass(BaseModel):
    """A class of queries and how much it matters."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        json_schema_extra={"examples": [{"name": "alarms", "priority": 6, "description": "Wakes people up"}]},
    )

    name: Name
    """Identifier of at most 64 characters."""
    # 1000 steps let priorities be ratios (6:3:1) with room to insert; the bound keeps one class from
    # making the shares of all others vanish in the cycle of a broadcast disk.
    priority: Annotated[StrictInt, Field(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY)] = LOWEST_PRIORITY
    """1 to 1000, higher matters more; class policies give shares of the processor in this ratio."""
    description: Annotated[str, Field(max_length=1000)] = ""
    """For people."""
