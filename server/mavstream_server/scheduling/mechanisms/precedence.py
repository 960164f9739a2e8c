"""Precedence of queries of higher weight, without starving the others."""

from __future__ import annotations


class Precedence:
    """Grants as many turns in a row to heavy queries as the next one's weight, then one to the others.

    If more heavy queries wait than others, the number of turns is scaled by that ratio; otherwise each heavy
    query would get less than its share.
    """

    __slots__ = ("_in_a_row",)

    def __init__(self) -> None:
        self._in_a_row = 0

    def granted(self, weight: int, heavy: int, others: int) -> bool:
        """Return whether a heavy query of this weight has the next turn, given the numbers that wait."""
        granted = not others or self._in_a_row < max(weight, weight * heavy // others)
        self._in_a_row = self._in_a_row + 1 if granted else 0
        return granted
