"""Messages of the results websocket, `WS /v1/queries/{id}/results`, all from the server.

Offsets count a query's results from 0. The address may contain `after` (an offset: the next row is the one
after it; `latest` for rows from now on; without it, all stored rows), `format` (`rows` or `arrow`) and
`on_lag` (`gap` or `disconnect`). The first message is `opened`. Rows are text messages (`Rows`), or binary
ones (see `envelope`) with `RowsHeader` followed by one Arrow record batch message.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from mavstream_protocol.streams import FieldSpec
from mavstream_protocol.wire.seams import NotRetained

_CONFIG = ConfigDict(frozen=True, extra="forbid")


class OnLag(StrEnum):
    """Handling of a subscriber whose next rows were removed."""

    GAP = "gap"
    """Send a gap message and continue."""
    DISCONNECT = "disconnect"


class GapReason(StrEnum):
    """Why rows are missing."""

    RETENTION = "retention"
    """Rows were removed before they were read."""
    DAMAGE = "damage"
    """The files that held the rows are damaged."""
    RESTART = "restart"
    """The query restarted with empty state under a new epoch."""


class Opened(BaseModel):
    """The subscription is open."""

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
    """Offset of the first row."""
    epoch: int
    rows: list[dict[str, Any]]


class RowsHeader(BaseModel):
    """Header of an Arrow record batch."""

    model_config = _CONFIG
    offset: int
    epoch: int
    count: int


class Gap(BaseModel):
    """Rows from `start` to before `stop` are missing; after a restart there may be none."""

    model_config = _CONFIG
    type: Literal["gap"] = "gap"
    start: int
    stop: int
    epoch: int
    reason: GapReason
    detail: str


class Replaced(BaseModel):
    """The query's plan was replaced: rows from this offset on are answers of another plan."""

    model_config = _CONFIG
    type: Literal["replaced"] = "replaced"
    offset: int
    """Offset of the first row of the new plan, also if there is none yet."""
    epoch: int
    revision: int
    """How often the plan was replaced so far."""
    fields: tuple[FieldSpec, ...]
    not_retained: tuple[NotRetained, ...] = ()
    """Rows that the new plan would have needed: windows with such rows are not answered."""


class Closed(BaseModel):
    """The query has ended and all its rows were sent."""

    model_config = _CONFIG
    type: Literal["closed"] = "closed"
    state: str
    """State of the query: finished, stopped or failed."""
    detail: str = ""


ToSubscriber = Annotated[Opened | Rows | Gap | Replaced | Closed, Field(discriminator="type")]
to_subscriber: TypeAdapter[Opened | Rows | Gap | Replaced | Closed] = TypeAdapter(ToSubscriber)
