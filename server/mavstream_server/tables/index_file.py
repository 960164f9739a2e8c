"""The index of a version by some of its columns: built from the version, or mapped from a file beside it.

Large versions are indexed by who puts them, before they are current, so that no query waits for it. A file is
only a shortcut: without one the same index is built where it is needed. It gets its name when it is whole.
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
from mavstream_server.tables.errors import TableFilesError
from mavstream_server.tables.file import VersionFile
from mavstream_server.tables.key_index import KeyIndex, Places
from mavstream_server.tables.mapped import MappedArrays, write_arrays
from mavstream_server.tables.texts import MappedTexts, TextHashes

LARGE = 8192
"""Rows from which a version is worth a file: fewer are indexed in a few milliseconds."""

_MAGIC = b"MvIndex\n"
_INT, _HASH = np.dtype(np.int64), np.dtype(np.uint64)

Keys = tuple[str, ...]
"""Columns of a table by which it is joined, in the order of the join."""

Look = Callable[[Sequence[str]], Sequence[int]]
"""Returns the codes of texts in the version, -1 for those that it does not have."""


class VersionIndex(NamedTuple):
    """The rows of a version by key."""

    keys: KeyIndex
    looks: tuple[Look | None, ...]
    """For each key column of strings, how its texts are found."""
    mapped: bool
    """Whether it stands in a file."""


def index_path(folder: Path, number: int, names: Keys) -> Path:
    """Return the file of a version's index by columns."""
    return folder / f"{number:010d}-{hashlib.sha256(orjson.dumps(list(names))).hexdigest()[:16]}.index"


def write_indexes(folder: Path, number: int, file: Path, joined_by: Iterable[Keys], sync: bool) -> None:
    """Index a version whose file is given by several keys, if it is large; what is there already stays."""
    version = VersionFile(file)
    if version.rows < LARGE:
        return
    for names in joined_by:
        path = index_path(folder, number, names)
        if open_index(path, version, names) is None:
            write_index(path, version, names, sync)


def remove_indexes(folder: Path, going: Callable[[int], bool]) -> None:
    """Remove the indexes of the versions with numbers that are going."""
    for file in folder.glob("*-*.index"):
        if going(int(file.name.partition("-")[0])):
            file.unlink(missing_ok=True)


def build_index(columns: Sequence[Column], types: Sequence[FieldType], rows: int) -> VersionIndex:
    """Index rows by columns in memory. Rows with a null key are left out: null equals nothing."""
    return VersionIndex(
        _keys(columns, types, rows),
        tuple(None if column.dictionary is None else _look(column.dictionary) for column in columns),
        mapped=False,
    )


def write_index(file: Path, version: VersionFile, names: Keys, sync: bool) -> None:
    """Index a version by columns and write that to a file."""
    types = [version.type(name) for name in names]
    keys = _keys([version.bare_column(name) for name in names], types, version.rows)
    arrays: list[Array] = []

    def add(array: Array) -> int:
        arrays.append(np.ascontiguousarray(array))
        return len(arrays) - 1

    columns: list[dict[str, int]] = []
    for name, type_, places in zip(names, types, keys.columns, strict=True):
        parts = {"keys": add(places.keys), "slots": add(places.slots)}
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


def open_index(file: Path, version: VersionFile, names: Keys) -> VersionIndex | None:
    """Map the index of a version, or return None if there is none that fits."""
    if not file.exists():
        return None
    try:
        arrays = MappedArrays(file, _MAGIC, "an index of a table")
    except TableFilesError:
        return None
    header = arrays.header
    if header["digest"] != version.digest or header["names"] != list(names):
        return None
    looks: list[Look | None] = []
    for name, parts in zip(names, header["columns"], strict=True):
        look = None
        if "hashes" in parts:
            hashes = TextHashes(arrays.array(parts["hashes"], _HASH), arrays.array(parts["codes"], _INT))
            look = _look_mapped(hashes, version.texts(name))
        looks.append(look)
    keys = KeyIndex(
        tuple(_places(arrays, parts) for parts in header["columns"]),
        tuple(_places(arrays, parts) for parts in header["pairs"]),
        arrays.array(header["begins"], _INT),
        arrays.array(header["rows"], _INT),
    )
    return VersionIndex(keys, tuple(looks), mapped=True)


def _keys(columns: Sequence[Column], types: Sequence[FieldType], rows: int) -> KeyIndex:
    valid: Mask | None = None
    for column in columns:
        valid = both_valid(valid, column.valid)
    kept = np.arange(rows) if valid is None else np.flatnonzero(valid)
    whole = len(kept) == rows
    taken = columns if whole else [column.take(kept) for column in columns]
    ints = [key_ints(column, type_) for column, type_ in zip(taken, types, strict=True)]
    return KeyIndex.build(ints, kept)


def _places(arrays: MappedArrays, parts: dict[str, Any]) -> Places:
    return Places(arrays.array(parts["keys"], _INT), arrays.array(parts["slots"], _INT))


def _look(dictionary: Dictionary) -> Look:
    codes = dictionary.codes
    return lambda texts: [codes.get(text, -1) for text in texts]


def _look_mapped(hashes: TextHashes, texts: MappedTexts) -> Look:
    return lambda asked: hashes.find(asked, texts)
