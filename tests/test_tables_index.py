"""Indexes of tables find what a dictionary of Python finds, and never learn keys that they are asked for."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any

import numpy as np
import pytest

from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import Column
from mavstream_server.columns.index import IntIndex
from mavstream_server.operators.table_index import TableIndex

CELLS: dict[FieldType, Any] = {
    FieldType.INT: lambda random: random.choice(
        [random.randint(-20, 20), random.randint(-(1 << 63), (1 << 63) - 1)]
    ),
    FieldType.FLOAT: lambda random: random.choice([0.0, -0.0, 1.5, random.random(), -1e300]),
    FieldType.BOOL: lambda random: random.random() < 0.5,
    FieldType.STRING: lambda random: random.choice(["", "ä", "room", f"room {random.randint(0, 50)}"]),
    FieldType.TIMESTAMP: lambda random: random.randint(0, 30),
}


def keys(random: Random, types: list[FieldType], count: int) -> list[tuple[Any, ...]]:
    return [
        tuple(None if random.random() < 0.1 else CELLS[type_](random) for type_ in types)
        for _ in range(count)
    ]


def columns(types: list[FieldType], rows: list[tuple[Any, ...]]) -> list[Column]:
    return [Column.from_list(type_, [row[place] for row in rows]) for place, type_ in enumerate(types)]


@pytest.mark.parametrize("seed", range(40))
def test_every_row_with_equal_keys_is_found_in_the_order_of_the_table(seed: int) -> None:
    random = Random(seed)
    types = random.choices(list(FieldType), k=random.randint(1, 3))
    rows = keys(random, types, random.choice([0, 1, 7, 500]))
    index = TableIndex(columns(types, rows), types, len(rows))
    expected = defaultdict(list)
    for number, row in enumerate(rows):
        if None not in row:
            expected[row].append(number)
    for _ in range(4):  # each batch with a dictionary of its own
        asking = [*keys(random, types, 50), *random.choices(rows, k=50 if rows else 0)]
        found = [
            pair
            for part in index.matches(columns(types, asking), len(asking))
            for pair in zip(part.asking.tolist(), part.found.tolist(), strict=True)
        ]
        assert found == [(n, place) for n, row in enumerate(asking) for place in expected.get(row, ())]


def test_many_rows_of_one_key_come_in_portions_that_cover_every_asking_row_once() -> None:
    many = Column.from_list(FieldType.INT, [7] * 30_000 + [8])
    index = TableIndex([many], [FieldType.INT], len(many))
    asking = Column.from_list(FieldType.INT, [7, 9, 7, 8, 7, 7])
    parts = list(index.matches([asking], 6))
    assert len(parts) > 1
    assert max(len(part.asking) for part in parts) <= 1 << 16
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(6))
    assert sum(len(part.found) for part in parts) == 4 * 30_000 + 1


def test_keys_that_are_only_asked_for_take_no_memory() -> None:
    index = TableIndex([Column.from_list(FieldType.INT, [1, 1 << 60])], [FieldType.INT], 2)
    list(index.matches([Column(np.arange(10))], 10))
    before = index.nbytes
    found = list(index.matches([Column(np.arange(100_000) * 7919)], 100_000))
    assert (index.nbytes, sum(len(part.found) for part in found)) == (before, 0)


def test_scattered_numbers_are_found_again_after_more_were_added() -> None:
    index = IntIndex()
    first = np.array([5, -(1 << 60), 1 << 60])
    index.encode(first)
    assert index.find(np.array([1 << 60, 5, 6])).tolist() == [2, 0, -1]
    index.encode(np.array([6, 5]))
    assert index.find(np.array([6, 7, -(1 << 60)])).tolist() == [3, -1, 1]
