"""A priority queue whose keys can change and whose items can be removed."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

ItemT = TypeVar("ItemT")

_SLACK = 64  # outdated entries that do not justify a clean-up


class Ranking(Generic[ItemT]):
    """A heap with changeable keys and removable items, each operation in O(log n).

    Keys compare as tuples; end them with a unique number, so that ties are broken the same way in every run.
    A changed or removed item leaves an outdated entry behind, which is skipped when it reaches the top.
    """

    __slots__ = ("_entries", "_heap")

    def __init__(self) -> None:
        # Entries are a key, followed by the identity of the item and the item. The identity is for outdated
        # entries of an item that was replaced by one with the same key. A tuple inside of a tuple would take
        # twice as long to compare.
        self._heap: list[tuple[Any, ...]] = []
        self._entries: dict[int, tuple[Any, ...]] = {}  # the valid entry of each item, by identity

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, item: ItemT) -> bool:
        return id(item) in self._entries

    def put(self, item: ItemT, key: tuple[Any, ...]) -> None:
        """Add an item, or change its key; the smallest key is first."""
        entry = (*key, id(item), item)
        if self._entries.get(id(item)) == entry:
            return
        self._entries[id(item)] = entry
        heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._entries) + _SLACK:
            self._heap = list(self._entries.values())
            heapify(self._heap)

    def remove(self, item: ItemT) -> None:
        """Remove an item, if it is present."""
        self._entries.pop(id(item), None)

    def first(self) -> ItemT | None:
        """Return the first item, or None."""
        heap, entries = self._heap, self._entries
        while heap:
            entry = heap[0]
            if entries.get(entry[-2]) is entry:
                item: ItemT = entry[-1]
                return item
            heappop(heap)
        return None

    def pop(self) -> ItemT | None:
        """Remove and return the first item, or None."""
        item = self.first()
        if item is not None:
            heappop(self._heap)
            del self._entries[id(item)]
        return item
