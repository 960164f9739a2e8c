"""Precedence: those who weigh more go ahead of the others, and leave them a turn now and then."""

from __future__ import annotations


class Precedence:
    """Counts turns: as many in a row for the heavy as the one weighs who is next, then one for the others.

    Where more of the heavy wait than of the others, it is as many times more: else they would have less.
    """

    __slots__ = ("_in_a_row",)

    def __init__(self) -> None:
        self._in_a_row = 0

    def granted(self, weight: int, heavy: int, others: int) -> bool:
        """Whether one who weighs so much has the next turn, with so many waiting; else one of the others."""
        granted = not others or self._in_a_row < max(weight, weight * heavy // others)
        self._in_a_row = self._in_a_row + 1 if granted else 0
        return granted
