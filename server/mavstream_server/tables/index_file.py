"""The index of a version by key columns: built in memory, or mapped from a file beside the version.

Large versions are indexed when they are put, before they become current, so that no query waits for it. The
file is optional: without it the same index is built when it is needed. It gets its name when it is complete.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import Array, Column, Mask, both_valid
from mavstream_server.columns.dictionary import Dictionary
from mavstream_server.columns.keys import key_ints
from mavstream_server.columns.pieces import Steps, finished
from mavstream_server.tables.errors import TableFilesError
from mavstream_server.tables.file import VersionFile
from mavstream_server.tables.key_index import KeyIndex, KeyOrdinals
from mavstream_server.tables.mapped import MappedArrays, write_arrays
from mavstream_server.tables.texts import MappedTexts, TextHashes

LARGE = 8192
"""The number of rows from which an index is stored in a file; fewer are indexed in milliseconds."""

_MAGIC = b"MvIndex\n"
_INT, _HASH = np.dtype(np.int64), np.dtype(np.uint64)

Keys = tuple[str, ...]
"""The columns by which a table is joined, in the order of the join."""

TextLookup = Callable[[Sequence[str]], Sequence[int]]
"""Returns the version's codes of texts, -1 for texts that it does not have."""


class VersionIndex(NamedTuple):
    """The rows of a version by key."""

    keys: KeyIndex
    lookups: tuple[TextLookup | None, ...]
    """The text lookup of each string key column, None for other columns."""
    mapped: bool
    """Whether it is mapped from a file."""


def index_path(folder: Path, number: int, names: Keys) -> Path:
    """Return the path of a version's index by key columns."""
    return folder / f"{number:010d}-{hashlib.sha256(orjson.dumps(list(names))).hexdigest()[:16]}.index"


def write_indexes(folder: Path, number: int, file: Path, joined_by: Iterable[Keys], sync: bool) -> None:
    """Write the missing index files of a version for several sets of key columns, if it is large."""
    version = VersionFile(file)
    if version.rows < LARGE:
        return
    for names in joined_by:
        path = index_path(folder, number, names)
        if open_index(path, version, names) is None:
            write_index(path, version, names, sync)


def remove_indexes(folder: Path, removed: Callable[[int], bool]) -> None:
    """Remove the index files of the versions whose numbers satisfy a predicate."""
    for file in folder.glob("*-*.index"):
        if removed(int(file.name.partition("-")[0])):
            file.unlink(missing_ok=True)


def build_index(columns: Sequence[Column], types: Sequence[FieldType], rows: int) -> VersionIndex:
    """Index rows by key columns in memory; rows with a null key are omitted, since null equals nothing."""
    return finished(building_index(columns, types, rows))


def building_index(columns: Sequence[Column], types: Sequence[FieldType], rows: int) -> Steps[VersionIndex]:
    """Do the same in steps."""
    return VersionIndex(
        (yield from _keys(columns, types, rows)),
        tuple(None if column.dictionary is None else _lookup(column.dictionary) for column in columns),
        mapped=False,
    )


def write_index(file: Path, version: VersionFile, names: Keys, sync: bool) -> None:
    """Index a version by key columns and write the index to a file."""
    types = [version.type(name) for name in names]
    keys = finished(_keys([version.bare_column(name) for name in names], types, version.rows))
    arrays: list[Array] = []

    def add(array: Array) -> int:
        arrays.append(np.ascontiguousarray(array))
        return len(arrays) - 1

    columns: list[dict[str, int]] = []
    for name, type_, ordinals in zip(names, types, keys.columns, strict=True):
        parts = {"keys": add(ordinals.keys), "slots": add(ordinals.slots)}
        if type_ is FieldType.STRING:
            hashes = TextHashes.of(version.texts(name).dictionary().values)
            parts |= {"hashes": add(hashes.hashes), "codes": add(hashes.codes)}
        columns.append(parts)
    header = {
        "digest": version.digest,
        "names": list(names),
        "columns": columns,
        "pairs": [{"keys": add(pair.keys), "slots": add(pair.slots)} for pair in keys.pairs],
        "begins": add(keys.begins),
        "rows": add(keys.rows),
    }
    draft = file.with_suffix(".draft")
    write_arrays(draft, _MAGIC, header, arrays, sync)
    draft.rename(file)


def is_intact_index(file: Path) -> bool:
    """Return whether a file is an index with a correct checksum."""
    try:
        MappedArrays(file, _MAGIC, "an index of a table")
    except TableFilesError:
        return False
    return True


def open_index(file: Path, version: VersionFile, names: Keys) -> VersionIndex | None:
    """Map the index of a version; return None if there is none for this version and these columns."""
    if not file.exists():
        return None
    try:
        arrays = MappedArrays(file, _MAGIC, "an index of a table")
    except TableFilesError:
        return None
    header = arrays.header
    if header["digest"] != version.digest or header["names"] != list(names):
        return None
    lookups: list[TextLookup | None] = []
    for name, parts in zip(names, header["columns"], strict=True):
        lookup = None
        if "hashes" in parts:
            hashes = TextHashes(arrays.array(parts["hashes"], _HASH), arrays.array(parts["codes"], _INT))
            lookup = _mapped_lookup(hashes, version.texts(name))
        lookups.append(lookup)
    keys = KeyIndex(
        tuple(_ordinals(arrays, parts) for parts in header["columns"]),
        tuple(_ordinals(arrays, parts) for parts in header["pairs"]),
        arrays.array(header["begins"], _INT),
        arrays.array(header["rows"], _INT),
    )
    return VersionIndex(keys, tuple(lookups), mapped=True)


def _keys(columns: Sequence[Column], types: Sequence[FieldType], rows: int) -> Steps[KeyIndex]:
    valid: Mask | None = None
    for column in columns:
        valid = both_valid(valid, column.valid)
    rows_with_key = np.arange(rows) if valid is None else np.flatnonzero(valid)
    whole = len(rows_with_key) == rows
    taken = columns if whole else [column.take(rows_with_key) for column in columns]
    ints = [key_ints(column, type_) for column, type_ in zip(taken, types, strict=True)]
    return (yield from KeyIndex.building(ints, rows_with_key))


def _ordinals(arrays: MappedArrays, parts: dict[str, Any]) -> KeyOrdinals:
    return KeyOrdinals(arrays.array(parts["keys"], _INT), arrays.array(parts["slots"], _INT))


def _lookup(dictionary: Dictionary) -> TextLookup:
    codes = dictionary.codes
    return lambda texts: [codes.get(text, -1) for text in texts]


def _mapped_lookup(hashes: TextHashes, texts: MappedTexts) -> TextLookup:
    return lambda asked: hashes.find(asked, texts)
