"""Numbers as people read them: three significant digits, with their units."""

from __future__ import annotations

from datetime import UTC, datetime

NOTHING = "\N{EN DASH}"
"""Shown where nothing was measured."""

_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def digits(value: float) -> str:
    """Return a number below a thousand with three significant digits."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def count(value: float | None) -> str:
    """Return a number such as `12.3 k`."""
    if value is None:
        return NOTHING
    for factor, unit in _LARGE:
        if abs(value) >= factor:
            return f"{digits(value / factor)} {unit}"
    return digits(value)


def rate(value: float | None, of: str = "rows") -> str:
    """Return a rate such as `12.3 k rows/s`."""
    return NOTHING if value is None else f"{count(value)} {of}/s"


def milliseconds(value: float | None) -> str:
    """Return a time given in milliseconds, in the unit that fits: `0.42 ms`, `1.2 s`, `3 min`."""
    if value is None:
        return NOTHING
    if 0 < value < 0.1:
        return f"{digits(value * 1000)} µs"
    if value < 1000:
        return f"{digits(value)} ms"
    return duration(value / 1000)


def duration(seconds: float) -> str:
    """Return a duration such as `12 s`, `5 min` or `3 h`."""
    if seconds < 60:
        return f"{digits(seconds)} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{digits(seconds / 3600)} h" if seconds < 172_800 else f"{digits(seconds / 86_400)} d"


def size(value: float | None) -> str:
    """Return a number of bytes such as `16 MiB`."""
    if value is None:
        return NOTHING
    for factor, unit in _BYTES:
        if value >= factor:
            return f"{digits(value / factor)} {unit}"
    return f"{value:.0f} B"


def percent(share: float | None) -> str:
    """Return a share as a percentage."""
    return NOTHING if share is None else f"{digits(share * 100)} %"


def clock_time(text: str | None) -> str:
    """Return the time of an ISO 8601 instant in UTC: of today `20:35:12 UTC`, else with its date."""
    if not text:
        return NOTHING
    at = datetime.fromisoformat(text).astimezone(UTC)
    today = at.date() == datetime.now(UTC).date()
    return f"{at:%H:%M:%S} UTC" if today else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def ago(text: str | None) -> str:
    """Return how long ago an ISO 8601 instant is."""
    if not text:
        return NOTHING
    passed = (datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds()
    return f"in {duration(-passed)}" if passed < -1 else f"{duration(max(0.0, round(passed)))} ago"
