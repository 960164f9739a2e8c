"""Results: the messages of `WS /v1/queries/{id}/results`, all from the server.

Offsets count a query's answers from 0. The address may carry `after` (an offset: the next row is the one
behind it; `latest` for rows from now on; without it, all rows that are kept), `format` (`rows` or `arrow`)
and `on_lag` (`gap` or `disconnect`). The first message is `opened`. Rows come as text messages (`Rows`), or
as binary ones (see `envelope`) with `RowsHeader` ahead of one Arrow record batch message.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from mavstream_protocol.streams import FieldSpec

_CONFIG = ConfigDict(frozen=True, extra="forbid")


class OnLag(StrEnum):
    """What happens to a subscriber whose next rows are no longer there."""

    GAP = "gap"
    """It is told what it missed and goes on."""
    DISCONNECT = "disconnect"


class GapReason(StrEnum):
    """Why rows are missing."""

    RETENTION = "retention"
    """They were removed before they were read."""
    RESTART = "restart"
    """The query began anew, with empty state, under a new epoch."""


class Opened(BaseModel):
    """The subscription stands."""

    model_config = _CONFIG
    type: Literal["opened"] = "opened"
    query: str
    fields: tuple[FieldSpec, ...]
    next: int
    """The offset of the next row."""
    epoch: int


class Rows(BaseModel):
    """Rows at consecutive offsets."""

    model_config = _CONFIG
    type: Literal["rows"] = "rows"
    offset: int
    """Of the first row."""
    epoch: int
    rows: list[dict[str, Any]]


class RowsHeader(BaseModel):
    """What stands ahead of an Arrow record batch."""

    model_config = _CONFIG
    offset: int
    epoch: int
    count: int


class Gap(BaseModel):
    """Rows from `start` up to but not with `stop` will not come; after a restart these may be none."""

    model_config = _CONFIG
    type: Literal["gap"] = "gap"
    start: int
    stop: int
    epoch: int
    reason: GapReason
    detail: str


class Closed(BaseModel):
    """The query has ended and all its rows were sent."""

    model_config = _CONFIG
    type: Literal["closed"] = "closed"
    state: str
    """finished, stopped or failed."""
    detail: str = ""


ToSubscriber = Annotated[Opened | Rows | Gap | Closed, Field(discriminator="type")]
to_subscriber: TypeAdapter[Opened | Rows | Gap | Closed] = TypeAdapter(ToSubscriber)
