"""The heap of queries: frozen after many were added, collected after many were removed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from mavstream_server.core.heap import QueryHeap

SECOND = 1_000_000_000


class Plan:
    """An object of a query that refers to itself, as operators and their queries do."""

    def __init__(self) -> None:
        self.query = self


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """Leave the collector as it was."""
    gc.unfreeze()
    yield
    gc.unfreeze()


def is_frozen(thing: object) -> bool:
    return not any(thing is each for generation in range(3) for each in gc.get_objects(generation))


def test_many_new_queries_are_frozen_a_second_after_the_last_one() -> None:
    heap, plan = QueryHeap(), Plan()
    heap.tend(200, 0)
    heap.tend(300, SECOND)
    heap.tend(300, 2 * SECOND - 1)
    assert not is_frozen(plan)
    heap.tend(300, 2 * SECOND)
    assert is_frozen(plan)


def test_a_few_new_queries_are_left_to_the_collector() -> None:
    heap, plan = QueryHeap(), Plan()
    heap.tend(3, 0)
    heap.tend(3, 5 * SECOND)
    assert not is_frozen(plan)


def test_frozen_queries_that_were_removed_are_collected_after_many_of_them() -> None:
    heap = QueryHeap()
    heap.tend(2000, 0)
    plan = Plan()
    gone = weakref.ref(plan)
    heap.tend(2000, SECOND)
    del plan
    gc.collect()
    assert gone() is not None  # garbage, but frozen
    heap.tend(1500, 2 * SECOND)
    heap.tend(1500, 3 * SECOND)
    assert gone() is not None
    heap.tend(1000, 4 * SECOND)
    heap.tend(1000, 5 * SECOND)
    assert gone() is None
