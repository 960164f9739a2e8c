"""Numbers, sizes and times as people read them; JSON output has them exactly."""

from __future__ import annotations

_UNITS = ("B", "KB", "MB", "GB", "TB")


def number(value: float) -> str:
    """Return a number in about three digits, whole ones in full: `1,234,567`, `12.3`, `0.0001`."""
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) >= 1e15:
        return f"{value:.4g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def size(count: float | None) -> str | None:
    """Return bytes with a unit: `950 B`, `67.1 MB`."""
    if count is None:
        return None
    amount, unit = float(count), 0
    while abs(amount) >= 999.95 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{count:,.0f} B" if unit == 0 else f"{amount:,.1f} {_UNITS[unit]}"


def clock(instant: object) -> str | None:
    """Return an instant to the second: `2026-01-01 12:00:00`, in UTC."""
    return None if instant is None else str(instant)[:19].replace("T", " ")
