"""Bands: the ranges of values that claims are held against."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Band:
    """The values between a low and a high end."""

    low: float = -inf
    high: float = inf
    strict: bool = False
    """Whether the ends themselves lie outside."""

    def __contains__(self, value: float) -> bool:
        if self.strict:
            return self.low < value < self.high
        return self.low <= value <= self.high

    def covers(self, low: float, high: float) -> bool:
        """Return whether the whole interval lies inside the band."""
        return low in self and high in self

    def excludes(self, low: float, high: float) -> bool:
        """Return whether the whole interval lies outside the band."""
        if self.strict:
            return high <= self.low or low >= self.high
        return high < self.low or low > self.high

    def __str__(self) -> str:
        if self.low == -inf:
            return f"{'less than' if self.strict else 'at most'} {self.high:g}"
        if self.high == inf:
            return f"{'more than' if self.strict else 'at least'} {self.low:g}"
        return f"between {self.low:g} and {self.high:g}" if self.strict else f"{self.low:g} to {self.high:g}"


def at_least(low: float) -> Band:
    """Return the band of values that reach `low`."""
    return Band(low=low)


def at_most(high: float) -> Band:
    """Return the band of values that do not exceed `high`."""
    return Band(high=high)


def above(low: float) -> Band:
    """Return the band of values greater than `low`: a tie is outside."""
    return Band(low=low, strict=True)


def below(high: float) -> Band:
    """Return the band of values less than `high`: a tie is outside."""
    return Band(high=high, strict=True)


def between(low: float, high: float, strict: bool = False) -> Band:
    """Return the band between two values, with its ends unless `strict`."""
    return Band(low, high, strict)
