"""Checksums of rows that depend on neither order nor partitioning.

The hash of a row is Spark's `xxhash64` over its columns in order and a mask of those that are null (Spark's
own hash passes nulls over). The checksum is the sum of the hashes modulo 2**64, as 16 hexadecimal digits;
unlike an exclusive or, a sum sees rows that are there twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HIGH, _LOW, _ROWS = "high", "low", "rows"


def checksum_columns(names: Sequence[str]) -> list[Column]:
    """Return the aggregates that `checksum_of` needs; the hash goes in halves, or its sum would overflow."""
    from pyspark.sql.functions import expr

    mask = " + ".join(f"IF(`{name}` IS NULL, {1 << place % 62}L, 0L)" for place, name in enumerate(names))
    hashed = f"xxhash64({', '.join(f'`{name}`' for name in names)}, {mask})"
    return [
        expr("count(1)").alias(_ROWS),
        expr(f"sum(shiftright({hashed}, 32))").alias(_HIGH),
        expr(f"sum({hashed} & 4294967295L)").alias(_LOW),
    ]


def checksum_of(found: Mapping[str, Any]) -> tuple[int, str]:
    """Return rows and checksum from the values of the aggregates."""
    total = ((found[_HIGH] or 0) << 32) + (found[_LOW] or 0)
    return int(found[_ROWS]), f"{total % (1 << 64):016x}"


def checksum(frame: DataFrame) -> tuple[int, str]:
    """Count and hash the rows of a frame."""
    (row,) = frame.agg(*checksum_columns(frame.columns)).collect()
    return checksum_of(row.asDict())
