"""Instants: points in time as microseconds since 1970 in UTC, written as ISO 8601 text."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated

from pydantic import PlainSerializer, WithJsonSchema

from mavstream_protocol.explained import explained

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

# Four-digit years only: every instant that is let in can be written as ISO 8601 text again.
FIRST_INSTANT = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // MICROSECOND
LAST_INSTANT = (datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC) - EPOCH) // MICROSECOND

_EXAMPLE = "2026-01-01T12:00:00Z"
_ISO = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ](?P<hour>[0-9]{2})"
    r"(?::(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,9}))?)?)?"
    r"(?:(?P<utc>[Zz])|(?P<sign>[+-])(?P<off_hour>[0-9]{2})(?::?(?P<off_minute>[0-9]{2}))?)?)?"
)


def parse_instant(text: str) -> int:
    """Return microseconds since 1970 for ISO 8601 text; text without an offset is UTC. Raises ValueError.

    Digits beyond microseconds are refused unless they are zero, because dropping them would lose data.
    """
    shown = f"'{text}'" if len(text) <= 40 else f"'{text[:40]}...'"
    match = _ISO.fullmatch(text)
    if match is None:
        raise ValueError(f"instant {shown} is not ISO 8601 text: write it as {_EXAMPLE}")
    fraction = (match["fraction"] or "").ljust(9, "0")
    if fraction[6:] != "000":
        raise ValueError(f"instant {shown} is finer than a microsecond: write at most six decimals")
    try:
        local = datetime.fromisoformat(match["date"]).replace(
            hour=int(match["hour"] or 0),
            minute=int(match["minute"] or 0),
            second=int(match["second"] or 0),
            microsecond=int(fraction[:6]),
            tzinfo=_zone(match),
        )
    except ValueError as error:
        raise ValueError(f"instant {shown} does not exist: {error}; write it as {_EXAMPLE}") from None
    return _in_range((local - EPOCH) // MICROSECOND, shown)


def format_instant(microseconds: int) -> str:
    """Return ISO 8601 text with microseconds and `Z`; raises ValueError outside the years 1 to 9999."""
    _in_range(microseconds, str(microseconds))
    # strftime leaves out leading zeros of early years on some platforms; isoformat does not.
    return (EPOCH + timedelta(microseconds=microseconds)).replace(tzinfo=None).isoformat(
        timespec="microseconds"
    ) + "Z"


def read_instant(value: object) -> int:
    """Return microseconds for ISO text, an integer of microseconds, or a datetime. Raises ValueError."""
    if isinstance(value, str):
        return parse_instant(value)
    if isinstance(value, datetime):
        # As in text, no offset means UTC: the zone of the machine must not change the meaning.
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return _in_range((aware - EPOCH) // MICROSECOND, f"'{value.isoformat()}'")
    if isinstance(value, int) and not isinstance(value, bool):
        return _in_range(value, str(value) if abs(value) < 10**40 else "with more than 40 digits")
    raise ValueError(
        f"instant must be ISO 8601 text such as {_EXAMPLE} or an integer of microseconds since 1970, "
        f"got a value of type {type(value).__name__}"
    )


def _in_range(microseconds: int, shown: str) -> int:
    if not FIRST_INSTANT <= microseconds <= LAST_INSTANT:
        raise ValueError(
            f"instant {shown} is outside the years 1 to 9999: "
            "give microseconds since 1970 (not nanoseconds) or ISO 8601 text"
        )
    return microseconds


def _zone(match: re.Match[str]) -> timezone:
    if match["sign"] is None:
        return UTC
    minutes = int(match["off_minute"] or 0)
    if minutes > 59:
        raise ValueError("minute of the offset must be in 0..59")
    offset = timedelta(hours=int(match["off_hour"]), minutes=minutes)
    return timezone(-offset if match["sign"] == "-" else offset)


Instant = Annotated[
    int,
    explained("instant", read_instant),
    PlainSerializer(format_instant, return_type=str),
    WithJsonSchema(
        {
            "anyOf": [{"type": "string", "format": "date-time"}, {"type": "integer"}],
            "description": "ISO 8601 text (without an offset it is UTC), or microseconds since 1970.",
            "examples": [_EXAMPLE, 1767268800000000],
        }
    ),
]
"""Microseconds since 1970, UTC; on the wire ISO 8601 text or an integer of microseconds."""
