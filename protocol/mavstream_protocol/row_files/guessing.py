"""Types of columns of text: what nearly all cells are, and which cells are something else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mavstream_protocol.row_files.cells import NULLS, read_cells
from mavstream_protocol.row_files.csv_text import TextRows
from mavstream_protocol.row_files.reading import Reading
from mavstream_protocol.schema import FieldType

_ENOUGH = 0.9
"""The share of cells with which a column has a type though the others have not."""
_ORDER = (FieldType.BOOL, FieldType.INT, FieldType.FLOAT, FieldType.TIMESTAMP)
_DIGITS = r"^\s*[+-]?[0-9]+\s*$"
_LEADING_ZERO = r"^\s*[+-]?0[0-9]"


class Guess(NamedTuple):
    """The type of a column."""

    type: FieldType
    nullable: bool
    remark: str | None
    """What is said of cells that are not of this type; None if all are."""


def guess_types(rows: TextRows, reading: Reading, unix_columns: Sequence[str] = ()) -> dict[str, Guess]:
    """Return the type of each column; `unix_columns` have times as numbers, if such a format is given."""
    found: dict[str, Guess] = {}
    lines: list[int] = []
    for name in rows.columns.column_names:
        texts = rows.columns.column(name).combine_chunks()
        empty = pc.is_null(pc.if_else(pc.is_in(texts, value_set=NULLS), pa.scalar(None, pa.string()), texts))
        filled = len(texts) - int(pc.sum(empty).as_py() or 0)
        type_, odd = _type_of(name, texts, filled, reading, unix_columns)
        remark = None
        if odd is not None:
            lines = lines or rows.lines()
            first = int(np.flatnonzero(odd)[0])
            count = int(odd.sum())
            remark = (
                f"column '{name}' is taken for {type_.value}: {count:,} of {filled:,} cells "
                f"{'is' if count == 1 else 'are'} none, first '{texts[first].as_py()}' in line {lines[first]}"
            )
        found[name] = Guess(type_, filled < len(texts), remark)
    return found


def _type_of(
    name: str, texts: pa.Array, filled: int, reading: Reading, unix_columns: Sequence[str]
) -> tuple[FieldType, np.ndarray | None]:
    if not filled:
        return FieldType.STRING, None
    unix = (reading.time_format or "").startswith("unix")
    if unix and name in unix_columns:
        return FieldType.TIMESTAMP, None
    best: tuple[int, FieldType, np.ndarray] | None = None
    for type_ in _ORDER:
        odd = _odd(type_, texts, reading, unix)
        if odd is None:
            continue
        count = int(odd.sum())
        if not count:
            return type_, None
        if best is None or count < best[0]:
            best = count, type_, odd
    if best is not None and best[0] <= (1 - _ENOUGH) * filled:
        return best[1], best[2]
    return FieldType.STRING, None


def _odd(type_: FieldType, texts: pa.Array, reading: Reading, unix: bool) -> np.ndarray | None:
    """Return which cells are no values of a type; None if the column cannot have it."""
    if type_ is FieldType.TIMESTAMP and (
        unix or (reading.time_format is None and pc.any(pc.match_substring_regex(texts, _DIGITS)).as_py())
    ):
        # A number may be a time, but nothing says so.
        return None
    if type_ is FieldType.BOOL:
        odd = ~pc.fill_null(pc.match_substring_regex(texts, r"^\s*(?i:true|false)\s*$"), True).to_numpy(
            zero_copy_only=False
        )
        empty = pc.is_in(texts, value_set=NULLS).to_numpy(zero_copy_only=False)
        return np.asarray(odd & ~empty)
    if type_ in (FieldType.INT, FieldType.FLOAT):
        # 007 is not 7.
        padded = pc.match_substring_regex(texts, _LEADING_ZERO)
        if pc.any(padded).as_py():
            return None
    bad = read_cells(type_, texts, reading).bad
    return np.zeros(len(texts), dtype=bool) if bad is None else bad
