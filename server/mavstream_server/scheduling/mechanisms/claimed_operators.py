"""Claimed operators: those that a slice must leave out, for policies whose slices have several operators."""

from __future__ import annotations

from mavstream_server.scheduling.view import OperatorView, QueryView, Slice


class ClaimedOperators:
    """Tracks which operators are, or might be, part of a running slice.

    An operator whose query was taken over from another policy can be in a slice that was started there. So
    if a query is admitted with work waiting, its operators count as claimed until `arrived` is called for
    them or a slice of them ends; operators of a running slice report work waiting.
    """

    __slots__ = ("_slices", "_unreported")

    def __init__(self) -> None:
        self._slices: dict[int, frozenset[int]] = {}  # by number of the first operator; one per core
        self._unreported: set[int] = set()

    def __contains__(self, operator: OperatorView) -> bool:
        number = operator.number
        if number in self._unreported:
            return True
        return bool(self._slices) and any(number in numbers for numbers in self._slices.values())

    def admit(self, query: QueryView) -> None:
        """Add a query; those of its operators that are not running will arrive once they have work."""
        if any(operator.ready for operator in query.operators):
            self._unreported.update([operator.number for operator in query.operators])

    def retire(self, query: QueryView) -> None:
        """Remove a query and its running slices."""
        numbers = {operator.number for operator in query.operators}
        self._unreported -= numbers
        self._slices = {first: others for first, others in self._slices.items() if first not in numbers}

    def arrived(self, operator: OperatorView) -> None:
        """Note that an operator has arrived, so it is not running."""
        self._unreported.discard(operator.number)

    def claim(self, slice_: Slice, numbers: frozenset[int]) -> None:
        """Claim the operators of a slice that starts."""
        self._slices[slice_.operators[0].number] = numbers

    def release(self, slice_: Slice) -> None:
        """Release the operators of a slice that has ended, whichever policy started it."""
        if self._slices.pop(slice_.operators[0].number, None) is None:
            self._unreported.difference_update([operator.number for operator in slice_.operators])

    def overlaps(self, numbers: frozenset[int]) -> bool:
        """Return whether any of these operators is in a slice of this policy."""
        return bool(self._slices) and any(not numbers.isdisjoint(others) for others in self._slices.values())

    def all_free(self, numbers: frozenset[int]) -> bool:
        """Return whether all of these operators are free."""
        return self._unreported.isdisjoint(numbers) and not self.overlaps(numbers)

    def without_claimed(self, slice_: Slice) -> Slice:
        """Return a slice without its claimed operators."""
        return slice_._replace(operators=tuple(o for o in slice_.operators if o not in self))
