"""Length of the slots of a broadcast disk: by the work that was left over, or by measured turns."""

from __future__ import annotations

from collections.abc import Container

_SMOOTHING = 0.125
"""Weight of the newest turn in the mean of its class."""


class QuotaSlice:
    """Length of a slot: grows by the time that was missing, and shrinks after a round without need.

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
        """Grow by the time that was missing to finish the work of a slot."""
        self._grown = True
        grown = min(self._most, self.length + missing)
        if grown > self.length:
            self._last = grown - self.length
            self.length = grown

    def round_over(self) -> None:
        """Undo the last growth, unless the slice has grown in the round that ends."""
        if not self._grown and self.length > self._last:
            self.length = max(self._least, self.length - self._last)
        # As printed, this is never reset, and a slice that has grown once can never shrink again.
        self._grown = False

    def fit(self, length: int) -> None:
        """Take a length, within the bounds."""
        self.length = min(self._most, max(self._least, length))


class TurnCosts:
    """Mean time of a turn by class, over the last dozen or so. Nanoseconds."""

    __slots__ = ("_means",)

    def __init__(self) -> None:
        self._means: dict[str, float] = {}

    def record(self, class_name: str, elapsed: int) -> None:
        """Add a turn of a class."""
        mean = self._means.get(class_name, elapsed)
        self._means[class_name] = mean + _SMOOTHING * (elapsed - mean)

    def keep(self, classes: Container[str]) -> None:
        """Forget all other classes."""
        self._means = {name: mean for name, mean in self._means.items() if name in classes}

    @property
    def longest(self) -> float:
        """The mean of the class with the longest turns; 0 if there was none."""
        return max(self._means.values(), default=0.0)

    def short(self, class_name: str) -> bool:
        """Return whether turns of a class are less than half as long as those of another one."""
        return 2 * self._means.get(class_name, 0.0) < self.longest
