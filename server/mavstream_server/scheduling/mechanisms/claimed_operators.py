"""Taken operators: those that a slice must leave out, for policies whose slices are several operators."""

from __future__ import annotations

from mavstream_server.scheduling.view import OperatorView, QueryView, Slice


class ClaimedOperators:
    """Keeps which operators are being run, or could be.

    An operator whose query has come from another policy can be in a slice that was begun there, and this
    policy is not told of its end. So where a query comes with something to do, its operators count as taken
    until they are told of, or have been in a slice here; what is being worked on counts as something to do.
    """

    __slots__ = ("_slices", "_unreported")

    def __init__(self) -> None:
        self._slices: dict[int, frozenset[int]] = {}  # by the number of the first operator; one per core
        self._unreported: set[int] = set()

    def __contains__(self, operator: OperatorView) -> bool:
        number = operator.number
        if number in self._unreported:
            return True
        return bool(self._slices) and any(number in numbers for numbers in self._slices.values())

    def admit(self, query: QueryView) -> None:
        """A query has come: whoever of it is not being run will be told of, once it has something to do."""
        if any(operator.ready for operator in query.operators):
            self._unreported.update([operator.number for operator in query.operators])

    def retire(self, query: QueryView) -> None:
        """A query goes, with what is being run of it."""
        numbers = {operator.number for operator in query.operators}
        self._unreported -= numbers
        self._slices = {first: others for first, others in self._slices.items() if first not in numbers}

    def arrived(self, operator: OperatorView) -> None:
        """An operator has arrived, so it is not being run."""
        self._unreported.discard(operator.number)

    def claim(self, slice_: Slice, numbers: frozenset[int]) -> None:
        """A slice of these operators begins."""
        self._slices[slice_.operators[0].number] = numbers

    def release(self, slice_: Slice) -> None:
        """A slice has ended, whoever began it."""
        if self._slices.pop(slice_.operators[0].number, None) is None:
            self._unreported.difference_update([operator.number for operator in slice_.operators])

    def overlaps(self, numbers: frozenset[int]) -> bool:
        """Return whether any of these operators is in a slice of this policy."""
        return bool(self._slices) and any(not numbers.isdisjoint(others) for others in self._slices.values())

    def all_free(self, numbers: frozenset[int]) -> bool:
        """Return whether all of these operators are free."""
        return self._unreported.isdisjoint(numbers) and not self.overlaps(numbers)

    def without_claimed(self, slice_: Slice) -> Slice:
        """Return a slice without the operators that are taken."""
        return slice_._replace(operators=tuple(o for o in slice_.operators if o not in self))
