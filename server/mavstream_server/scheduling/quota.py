"""The quota slice: how long a class runs at a time, fitted to the work while it goes on."""

from __future__ import annotations


class QuotaSlice:
    """A length of time that grows by what was missing, and shrinks by the same in a round without need.

    Dissertation, 5.2.1 and Algorithm 3. Nanoseconds.
    """

    __slots__ = ("_grown", "_last", "_least", "_most", "length")

    def __init__(self, length: int, least: int, most: int) -> None:
        self.length = length
        self._least = least
        self._most = most
        self._last = 0
        self._grown = False

    def lengthen(self, missing: int) -> None:
        """So much more time would have been needed to finish what was begun."""
        self._grown = True
        grown = min(self._most, self.length + missing)
        if grown > self.length:
            self._last = grown - self.length
            self.length = grown

    def round_over(self) -> None:
        """Give back the last growth, unless the round that ends has asked for more."""
        if not self._grown and self.length > self._last:
            self.length = max(self._least, self.length - self._last)
        # As printed this is never reset, and a slice that has grown once can never shrink again.
        self._grown = False
