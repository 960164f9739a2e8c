"""Table indexes find the same rows as a Python dict, and lookups never add keys."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_server.columns.column import Column
from mavstream_server.operators.joins.table_index import TableIndex
from mavstream_server.tables.file import VersionFile, write_version
from mavstream_server.tables.index_file import (
    VersionIndex,
    build_index,
    index_path,
    open_index,
    write_index,
)
from mavstream_server.tables.texts import MappedTexts, TextHashes

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


def mapped(folder: Path, types: list[FieldType], given: list[Column], rows: int) -> VersionIndex:
    """Index columns by way of a version's file and a file of the index."""
    names = tuple(f"c{number}" for number in range(len(types)))
    schema = Schema(tuple(Field(name, type_, True) for name, type_ in zip(names, types, strict=True)))
    write_version(folder / "version", dict(zip(names, given, strict=True)), schema, rows, sync=False)
    file, path = VersionFile(folder / "version"), index_path(folder, 1, names)
    write_index(path, file, names, sync=False)
    index = open_index(path, file, names)
    assert index is not None
    return index


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_all_rows_with_equal_keys_are_found_in_table_order(tmp_path: Path, seed: int, in_file: bool) -> None:
    random = Random(seed)
    types = random.choices(list(FieldType), k=random.randint(1, 3))
    rows = keys(random, types, random.choice([0, 1, 7, 500]))
    given = columns(types, rows)
    made = mapped(tmp_path, types, given, len(rows)) if in_file else build_index(given, types, len(rows))
    index = TableIndex(made, types)
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


def test_many_matches_of_one_key_are_returned_in_chunks_that_cover_every_row_once() -> None:
    many = Column.from_list(FieldType.INT, [7] * 30_000 + [8])
    index = TableIndex(build_index([many], [FieldType.INT], len(many)), [FieldType.INT])
    asking = Column.from_list(FieldType.INT, [7, 9, 7, 8, 7, 7])
    parts = list(index.matches([asking], 6))
    assert len(parts) > 1
    assert max(len(part.asking) for part in parts) <= 1 << 16
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(6))
    assert sum(len(part.found) for part in parts) == 4 * 30_000 + 1


def test_looked_up_keys_take_no_memory() -> None:
    given = [Column.from_list(FieldType.INT, [1, 1 << 60])]
    index = TableIndex(build_index(given, [FieldType.INT], 2), [FieldType.INT])
    list(index.matches([Column(np.arange(10))], 10))
    before = index.nbytes
    found = list(index.matches([Column(np.arange(100_000) * 7919)], 100_000))
    assert (index.nbytes, sum(len(part.found) for part in found)) == (before, 0)


def test_texts_with_equal_hashes_are_distinguished() -> None:
    texts = ["attic", "hall", "ä"]
    hashes = TextHashes.of(texts)
    everywhere = TextHashes(np.repeat(hashes.hashes[:1], 3), hashes.codes)  # as if all hashes were equal
    asked = [text for text in texts if TextHashes.of([text]).hashes[0] == hashes.hashes[0]]
    raw = [text.encode() for text in texts]
    kept = MappedTexts(np.frombuffer(b"".join(raw), np.uint8), np.cumsum([len(text) for text in raw]))
    assert hashes.find([*texts, "cellar", ""], kept) == [0, 1, 2, -1, -1]
    assert everywhere.find(asked, kept) == [texts.index(asked[0])]


def test_a_stale_or_broken_index_is_not_used(tmp_path: Path) -> None:
    types = [FieldType.INT]
    mapped(tmp_path, types, columns(types, [(1,), (2,)]), 2)
    file = index_path(tmp_path, 1, ("c0",))
    before = file.read_bytes()
    mapped(tmp_path, types, columns(types, [(1,), (3,)]), 2)
    version = VersionFile(tmp_path / "version")
    assert open_index(file, version, ("c0",)) is not None
    file.write_bytes(before)
    assert open_index(file, version, ("c0",)) is None
    file.write_bytes(before[:-64])
    assert open_index(file, version, ("c0",)) is None
