"""Columns of random streams, and their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from mavstream_protocol.schema import Field, FieldType

INT, FLOAT, BOOL = FieldType.INT, FieldType.FLOAT, FieldType.BOOL
STRING, TIMESTAMP = FieldType.STRING, FieldType.TIMESTAMP

ARRIVAL_BASE = 1_700_000_000_000_000
"""Where the hand-advanced clock starts, in us: event times near it meet arrival times."""
NULL_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """A column as the plan writer sees it.

    `exact` columns are the same to the last bit however they are computed, so they may be compared,
    grouped and joined on; the others are averages and the like, equal within a tolerance only.
    """

    name: str
    type: FieldType
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Domain:
    """A field of the pool and how its values are drawn; `base` is the time around which a case plays."""

    field: Field
    draw: Callable[[Random, int], Any]

    def value(self, random: Random, base: int) -> Any:
        """Draw a value, null now and then where the field may be."""
        if self.field.nullable and random.random() < NULL_SHARE:
            return None
        return self.draw(random, base)


_LARGE = (4_503_599_627_370_497, -4_503_599_627_370_497, 10**12, -(10**12), 0, 1, -1)
_TEXTS = ("", "a", "b", "B", "é", "日本", "🎉", "it's", "a b", "zz")
# Multiples of an eighth: their sums are exact in any order.
_FLOATS = (0.0, -0.0, 0.125, -0.5, 1.0, 2.5, -7.25, 100.0, 4096.125, -65536.5)

# Sums of these depend on the order in their last bits.
ROUGH = Field("z", FLOAT)

POOL: tuple[Domain, ...] = (
    Domain(Field("k", INT), lambda r, _: r.randrange(4)),
    Domain(Field("n", INT, True), lambda r, _: r.randrange(-3, 4)),
    Domain(Field("big", INT), lambda r, _: r.choice(_LARGE)),
    Domain(Field("x", FLOAT, True), lambda r, _: r.choice(_FLOATS)),
    Domain(Field("y", FLOAT), lambda r, _: r.randrange(-80, 80) / 8),
    Domain(ROUGH, lambda r, _: r.uniform(-100, 100)),
    Domain(Field("flag", BOOL, True), lambda r, _: r.random() < 0.5),
    Domain(Field("on_", BOOL), lambda r, _: r.random() < 0.5),
    Domain(Field("room", STRING, True), lambda r, _: r.choice(_TEXTS)),
    Domain(Field("tag", STRING), lambda r, _: r.choice(_TEXTS[:4])),
    Domain(Field("at", TIMESTAMP, True), lambda r, base: base + 1000 * r.randrange(-3, 4)),
)
EVENT_TIME = Field("ts", TIMESTAMP)


def shapes(fields: tuple[Field, ...]) -> tuple[ColumnShape, ...]:
    """Return fields as columns of a plan."""
    return tuple(ColumnShape(field.name, field.type, field != ROUGH) for field in fields)
