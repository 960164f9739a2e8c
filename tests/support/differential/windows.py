"""Random windows of every kind."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.support.differential.scripts import Times

from mavstream_protocol.instants import format_instant
from mavstream_protocol.quantities import format_duration

_MOST_OVERLAP = 8


def random_window(random: Random, times: Times, by_rows: bool) -> dict[str, Any]:
    """Return a window as in a plan."""
    size = random.choice((1, 2, 3, 5, 10, 24)) if by_rows else random.choice((1, 3, 5, 10, 12, 30, 100))
    window: dict[str, Any] = {"kind": "tumbling"}
    hop = size
    if random.random() < 0.55:
        window["kind"] = "hopping"
        hop = max(random.choice((1, 2, 3, 4, 7, 10, size, size + 2, 2 * size)), -(-size // _MOST_OVERLAP))
    begin, until = _bounds(random)
    if by_rows:
        begin = None if begin is None else abs(begin) // 2
        until = None if until is None else (begin or 0) + 1 + abs(until)
        window |= {"size": size, "begin": begin, "until": until}
        if window["kind"] == "hopping":
            window["hop"] = hop
    else:
        window["size"] = format_duration(size * times.tick)
        if window["kind"] == "hopping":
            window["hop"] = format_duration(hop * times.tick)
        window |= _instants(times, begin, until)
    if random.random() < 0.1:
        window["partial"] = True  # of no effect: queries start with the first row here
    return {key: value for key, value in window.items() if value is not None}


def random_session(random: Random, times: Times) -> dict[str, Any]:
    """Return a session window as in a plan."""
    gap = format_duration(random.choice((1, 2, 3, 5, 10, 30, 100)) * times.tick)
    bounds = _instants(times, *_bounds(random))
    return {"kind": "session", "gap": gap} | {key: each for key, each in bounds.items() if each is not None}


def _bounds(random: Random) -> tuple[int | None, int | None]:
    begin = random.randrange(-10, 60) if random.random() < 0.3 else None
    until = (begin or 0) + random.randrange(1, 150) if random.random() < 0.25 else None
    return begin, until


def _instants(times: Times, begin: int | None, until: int | None) -> dict[str, str | None]:
    ticks = {"begin": begin, "until": until}
    return {k: None if v is None else format_instant(times.base + v * times.tick) for k, v in ticks.items()}
