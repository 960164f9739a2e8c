"""Windows: finite pieces of a stream, by time or by number of rows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictInt,
    Tag,
    model_validator,
)

from mavstream_protocol.instants import Instant
from mavstream_protocol.quantities import NonNegativeDuration, PositiveDuration, format_duration

LONGEST_SPAN = 36_525 * 86_400 * 1_000_000
"""Microseconds in a hundred years: windows and joins reach no further, so that times never overflow."""
MOST_WINDOWS = 10_000
"""Windows that one row may be in: each of them is answered."""


def _at_most_a_century(span: int) -> int:
    if span > LONGEST_SPAN:
        raise ValueError(f"{format_duration(span)} is too long: at most {format_duration(LONGEST_SPAN)}")
    return span


PositiveSpan = Annotated[PositiveDuration, AfterValidator(_at_most_a_century)]
NonNegativeSpan = Annotated[NonNegativeDuration, AfterValidator(_at_most_a_century)]

_CONFIG = ConfigDict(frozen=True, extra="forbid")


class TimeWindow(BaseModel):
    """A window of a length in time: half open, aligned to `begin`, or to 1970 where there is none."""

    model_config = _CONFIG

    kind: Literal["tumbling", "hopping"]
    size: PositiveSpan
    """The length of a window."""
    hop: PositiveSpan | None = None
    """The distance between the starts of two windows; the hop of a tumbling window is its size."""
    begin: Instant | None = None
    """The first window begins here; rows before it belong to none."""
    until: Instant | None = None
    """Open windows are closed here and the query ends."""
    partial: bool = False
    """Whether windows that began before the query did are answered, from the rows that it saw."""

    @model_validator(mode="after")
    def _hop_fits_kind(self) -> TimeWindow:
        _check(self.kind, self.size, self.hop, self.begin, self.until)
        return self

    @property
    def step(self) -> int:
        """The distance of two windows, in microseconds."""
        return self.size if self.hop is None else self.hop

    def last_end(self, time: int) -> int:
        """Return where the last window ends that begins no later than a time (us)."""
        origin = self.begin or 0
        number = (time - origin) // self.step
        if self.begin is not None:
            number = max(number, -1)
        end = origin + number * self.step + self.size
        return end if self.until is None else min(end, self.until)


class RowWindow(BaseModel):
    """A window of a number of rows, in stream order; rows count from 0 at the query's start."""

    model_config = _CONFIG

    kind: Literal["tumbling", "hopping"]
    size: Annotated[StrictInt, Field(gt=0, le=1 << 40)]
    hop: Annotated[StrictInt, Field(gt=0, le=1 << 40)] | None = None
    begin: Annotated[StrictInt, Field(ge=0)] | None = None
    until: Annotated[StrictInt, Field(ge=0)] | None = None
    partial: bool = False

    @model_validator(mode="after")
    def _hop_fits_kind(self) -> RowWindow:
        _check(self.kind, self.size, self.hop, self.begin, self.until)
        return self

    @property
    def step(self) -> int:
        """The distance of two windows, in rows."""
        return self.size if self.hop is None else self.hop


class SessionWindow(BaseModel):
    """Rows of a group that are less than a gap apart; it ends a gap after its last row."""

    model_config = _CONFIG

    kind: Literal["session"]
    gap: PositiveSpan
    """Rows that are at least this far apart belong to different sessions."""
    begin: Instant | None = None
    """Rows before it belong to no session."""
    until: Instant | None = None
    """Open sessions are closed here and the query ends."""
    partial: bool = False
    """Whether sessions that may have begun before the query did are answered, from the rows that it saw."""

    @model_validator(mode="after")
    def _bounds_fit(self) -> SessionWindow:
        _check_bounds(self.begin, self.until)
        return self


def _check(kind: str, size: int, hop: int | None, begin: int | None, until: int | None) -> None:
    if kind == "tumbling" and hop is not None:
        raise ValueError('a tumbling window has no hop; leave `hop` out or write `"kind": "hopping"`')
    if kind == "hopping" and hop is None:
        raise ValueError("a hopping window needs a `hop`: how far apart two windows begin")
    if hop is not None and size > hop * MOST_WINDOWS:
        raise ValueError(
            f"each row would be in {size // hop} windows, at most {MOST_WINDOWS} are possible; "
            "make `hop` larger or `size` smaller"
        )
    _check_bounds(begin, until)


def _check_bounds(begin: int | None, until: int | None) -> None:
    if begin is not None and until is not None and until <= begin:
        raise ValueError("`until` must be after `begin`")


def _is_session(value: Any) -> bool:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return bool(kind == "session")


def _refuse_sessions(value: Any) -> Any:
    if _is_session(value):
        raise ValueError(
            "only `aggregate` has session windows: each group has its own; take a tumbling or hopping window"
        )
    return value


def _by_kind(value: Any) -> str:
    return "session" if _is_session(value) else _by_size(value)


def _by_size(value: Any) -> str:
    size = value.get("size") if isinstance(value, dict) else getattr(value, "size", None)
    if isinstance(value, TimeWindow):
        return "time"
    if isinstance(value, RowWindow) or (isinstance(size, int) and not isinstance(size, bool)):
        return "rows"
    return "time"


Window = Annotated[
    Annotated[TimeWindow, Tag("time")] | Annotated[RowWindow, Tag("rows")],
    Discriminator(_by_size),
    BeforeValidator(_refuse_sessions),
]
"""By time if `size` is a duration (`"1s"`), by rows if it is a whole number."""

AggregateWindow = Annotated[
    Annotated[TimeWindow, Tag("time")]
    | Annotated[RowWindow, Tag("rows")]
    | Annotated[SessionWindow, Tag("session")],
    Discriminator(_by_kind),
]
"""The window of an aggregate: that of any windowed operator, or a session."""
