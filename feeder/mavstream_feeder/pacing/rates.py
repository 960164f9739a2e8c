"""Rates and their notation: `500`, `40@150s,80@50s`, `max`, `recorded`; `readings=500` for one stream."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from mavstream_feeder.errors import InvalidRate
from mavstream_protocol import parse_duration

_MICROSECONDS = 1_000_000
_NAMED = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)", re.DOTALL)
_RECORDED = re.compile(r"recorded(?::([A-Za-z_][A-Za-z0-9_]*))?")
_SPEED = re.compile(r"([0-9]+(?:\.[0-9]+)?)x?")
_MAX_RATE = 1e9
_MAX_SPEED = 1e6


@dataclass(frozen=True, slots=True)
class Piece:
    """A period with a constant rate."""

    per_second: float
    """Rows per second; 0 for none."""
    seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate of a stream over time, from its start; without pieces: as fast as acknowledgements allow.

    The stream ends after the last piece. Only the last piece may last forever.
    """

    pieces: tuple[Piece, ...] = ()

    @property
    def flat_out(self) -> bool:
        """Whether the stream is fed as fast as possible."""
        return not self.pieces

    def faster(self, speed: float) -> Rate:
        """Return the rate on a clock that runs `speed` times as fast."""
        return Rate(tuple(Piece(piece.per_second * speed, piece.seconds / speed) for piece in self.pieces))

    def __str__(self) -> str:
        if self.flat_out:
            return "max"
        return ",".join(
            f"{piece.per_second:g}" + ("" if math.isinf(piece.seconds) else f"@{piece.seconds:g}s")
            for piece in self.pieces
        )


@dataclass(frozen=True, slots=True)
class Recorded:
    """Arrivals as recorded: a column of the file has the time of each row."""

    column: str | None = None
    """The column, which need not be a field of the stream; None for the stream's event time."""
    origin: float | None = None
    """The recorded time, in seconds, that corresponds to the start of the stream; None for that of the first
    row, or for 0 if the column has seconds."""
    speed: float = 1.0

    def faster(self, speed: float) -> Recorded:
        """Return the same on a clock that runs `speed` times as fast."""
        return replace(self, speed=self.speed * speed)

    def __str__(self) -> str:
        return "recorded" if self.column is None else f"recorded:{self.column}"


AnyRate: TypeAlias = Rate | Recorded

FLAT_OUT = Rate()


def constant(per_second: float) -> Rate:
    """Return a constant rate."""
    return Rate((Piece(per_second),))


def parse_speed(text: str) -> float:
    """Parse the speed of the feeder's clock: `10x`, `0.5x`, `2`. Raises InvalidRate."""
    written = _SPEED.fullmatch(text.strip())
    speed = float(written[1]) if written else 0.0
    if not 1 / _MAX_SPEED <= speed <= _MAX_SPEED:
        raise InvalidRate(f"expected a speed such as 10x or 0.5x, got '{text}'")
    return speed


def parse_rate(text: str) -> AnyRate:
    """Parse a rate; raises InvalidRate."""
    if text.strip() == "max":
        return FLAT_OUT
    if recorded := _RECORDED.fullmatch(text.strip()):
        return Recorded(recorded[1])
    pieces = tuple(_piece(part.strip(), text) for part in text.split(","))
    if any(math.isinf(piece.seconds) for piece in pieces[:-1]):
        raise InvalidRate(
            f"rate '{text}' has a part without a duration before its last one: "
            "give each part a duration, such as 40@150s,80@50s"
        )
    if not any(piece.per_second for piece in pieces):
        raise InvalidRate(f"rate '{text}' is always zero: give a positive rate")
    return Rate(pieces)


def parse_rates(
    texts: Iterable[str], streams: Iterable[str], defaults: Mapping[str, AnyRate] | None = None
) -> Mapping[str, AnyRate]:
    """Return the rate of each stream: its own (`name=RATE`), the common one, or its default.

    Raises InvalidRate.
    """
    names = list(streams)
    common: AnyRate | None = None
    own: dict[str, AnyRate] = {}
    for text in texts:
        named = _NAMED.fullmatch(text)
        if named is None:
            common = parse_rate(text)
            continue
        name, rate = named.groups()
        if name not in names:
            raise InvalidRate(f"rate '{text}' is for '{name}', which is not fed: fed are {', '.join(names)}")
        own[name] = parse_rate(rate)
    found = {**(defaults or {}), **({} if common is None else dict.fromkeys(names, common)), **own}
    without = [name for name in names if name not in found]
    if without:
        raise InvalidRate(f"no rate for {', '.join(without)}: give one for all streams, such as --rate 500")
    return {name: found[name] for name in names}


def _piece(part: str, text: str) -> Piece:
    number, at, duration = part.partition("@")
    try:
        per_second = float(number)
    except ValueError:
        raise InvalidRate(
            f"rate '{text}' has the part '{part}': expected rows per second such as 500, "
            "parts such as 40@150s,80@50s, max or recorded"
        ) from None
    if not 0 <= per_second <= _MAX_RATE:
        raise InvalidRate(f"rate '{text}' has {number} rows per second: give 0 to {_MAX_RATE:g}, or max")
    if not at:
        return Piece(per_second)
    try:
        microseconds = parse_duration(duration)
    except ValueError as error:
        raise InvalidRate(f"rate '{text}': {error}") from None
    if microseconds == 0:
        raise InvalidRate(f"rate '{text}' has a part with a duration of 0: give a positive one")
    return Piece(per_second, microseconds / _MICROSECONDS)
