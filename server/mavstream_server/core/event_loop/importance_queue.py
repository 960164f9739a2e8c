"""A queue by importance and age."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class ImportanceQueue(Generic[K, T]):
    """Items by key, each in the queue once: the most important first, then in the order of their arrival.

    Operations take time in the number of different importances, which is at most that of classes.
    """

    def __init__(self) -> None:
        self._levels: dict[int, dict[K, tuple[int, T]]] = {}
        self._number = 0

    def __bool__(self) -> bool:
        return bool(self._levels)

    @property
    def highest(self) -> int:
        """The highest importance in the queue, which must not be empty."""
        return max(self._levels)

    def put(self, importance: int, key: K, item: T) -> None:
        """Add an item; one that is in the queue with the same importance keeps its place."""
        level = self._levels.setdefault(importance, {})
        if key not in level:
            self._number += 1
            level[key] = (self._number, item)

    def pop(self) -> T:
        """Take the first of the most important items."""
        return self._pop(max(self._levels))

    def pop_oldest(self) -> T:
        """Take the item that is in the queue for the longest time."""
        return self._pop(min(self._levels, key=self._age))

    def discard(self, key: K) -> None:
        """Remove an item, if it is in the queue."""
        for importance in list(self._levels):
            level = self._levels[importance]
            level.pop(key, None)
            if not level:
                del self._levels[importance]

    def _age(self, importance: int) -> int:
        return next(iter(self._levels[importance].values()))[0]

    def _pop(self, importance: int) -> T:
        level = self._levels[importance]
        _, item = level.pop(next(iter(level)))
        if not level:
            del self._levels[importance]
        return item
