"""Rates as people write them: `500`, `40@150s,80@50s`, `max`, `recorded`; `readings=500` for one stream."""

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
_HIGHEST = 1e9
_FASTEST = 1e6


@dataclass(frozen=True, slots=True)
class Piece:
    """A time during which the rate is constant."""

    per_second: float
    """Tuples a second, 0 for silence."""
    seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate of a stream over time, from the moment it joins; no pieces: as fast as acks allow.

    After the last piece the stream ends. Only the last piece may last for ever.
    """

    pieces: tuple[Piece, ...] = ()

    @property
    def flat_out(self) -> bool:
        """Whether the stream is fed as fast as it is taken."""
        return not self.pieces

    def faster(self, speed: float) -> Rate:
        """Return the rate on a clock that runs so many times as fast."""
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
    """Arrivals as they were recorded: a column of the file says when each row is due."""

    column: str | None = None
    """The column, which need not be a field of the stream; None for the stream's event time."""
    origin: float | None = None
    """The recorded time, in seconds, that is the moment at which the stream joins; None for the first row's,
    or for 0 where the column counts seconds."""
    speed: float = 1.0

    def faster(self, speed: float) -> Recorded:
        """Return the same on a clock that runs so many times as fast."""
        return replace(self, speed=self.speed * speed)

    def __str__(self) -> str:
        return "recorded" if self.column is None else f"recorded:{self.column}"


AnyRate: TypeAlias = Rate | Recorded

FLAT_OUT = Rate()


def constant(per_second: float) -> Rate:
    """Return the rate that never changes."""
    return Rate((Piece(per_second),))


def parse_speed(text: str) -> float:
    """Return how many times as fast the feeder's clock runs: `10x`, `0.5x`, `2`. Raises InvalidRate."""
    written = _SPEED.fullmatch(text.strip())
    speed = float(written[1]) if written else 0.0
    if not 1 / _FASTEST <= speed <= _FASTEST:
        raise InvalidRate(f"speed '{text}' cannot be read: write how many times as fast, such as 10x or 0.5x")
    return speed


def parse_rate(text: str) -> AnyRate:
    """Return the rate that `text` describes; raises InvalidRate."""
    if text.strip() == "max":
        return FLAT_OUT
    if recorded := _RECORDED.fullmatch(text.strip()):
        return Recorded(recorded[1])
    pieces = tuple(_piece(part.strip(), text) for part in text.split(","))
    if any(math.isinf(piece.seconds) for piece in pieces[:-1]):
        raise InvalidRate(
            f"rate '{text}' has a part without a duration ahead of its last one: "
            "write how long each part lasts, such as 40@150s,80@50s"
        )
    if not any(piece.per_second for piece in pieces):
        raise InvalidRate(f"rate '{text}' is zero throughout: no tuple would ever come, give a positive rate")
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
            f"rate '{text}' has the part '{part}': write tuples a second such as 500, "
            "parts such as 40@150s,80@50s, max or recorded"
        ) from None
    if not 0 <= per_second <= _HIGHEST:
        raise InvalidRate(f"rate '{text}' has {number} tuples a second: give 0 to {_HIGHEST:g}, or max")
    if not at:
        return Piece(per_second)
    try:
        microseconds = parse_duration(duration)
    except ValueError as error:
        raise InvalidRate(f"rate '{text}': {error}") from None
    if microseconds == 0:
        raise InvalidRate(f"rate '{text}' has a part that lasts no time: give a positive duration")
    return Piece(per_second, microseconds / _MICROSECONDS)
