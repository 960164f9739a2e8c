"""Joins with stored tables: each row joins the version that was current at its event time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from mavstream_spark.plans.table_data import TableData
from mavstream_spark.plans.windows import TIME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROW = "#row"
"""The index of a row in its version."""
_SINCE, _UNTIL = "#since", "#until"
_ID, _KEPT, _TURN = "#id", "#kept", "#turn"
_NEVER = (1 << 63) - 1


def table_frame(spark: SparkSession, table: TableData) -> DataFrame:
    """Return the rows of all versions, each with its index and the time in which it is current."""
    parts = []
    ends = [version.since for version in table.versions[1:]]
    for version, until in zip(table.versions, [*ends, None], strict=True):
        count = version.rows.num_rows
        columns = {
            **dict(zip(version.rows.schema.names, version.rows.columns, strict=True)),
            ROW: pa.array(range(count), pa.int64()),
            _SINCE: pa.repeat(pa.scalar(-_NEVER if version.since is None else version.since), count),
            _UNTIL: pa.repeat(pa.scalar(_NEVER if until is None else until), count),
        }
        parts.append(pa.table(columns))
    return spark.createDataFrame(pa.concat_tables(parts))


def looked_up(left: DataFrame, right: DataFrame, on: tuple[tuple[str, str], ...], outer: bool) -> DataFrame:
    """Return pairs with columns `l.name` and `r.name`; with `outer` also rows without a match, once."""
    from pyspark.sql.functions import expr

    sides = [
        side.selectExpr(*(f"`{name}` AS `{letter}.{name}`" for name in side.columns))
        for letter, side in (("l", left), ("r", right))
    ]
    current = f"`l.{TIME}` >= `r.{_SINCE}` AND `l.{TIME}` < `r.{_UNTIL}`"
    condition = " AND ".join([*(f"`l.{a}` = `r.{b}`" for a, b in on), current])
    return sides[0].join(sides[1], expr(condition), "left_outer" if outer else "inner")


def numbered(left: DataFrame) -> DataFrame:
    """Return rows with an id, by which `kept_once` finds those without a match."""
    from pyspark.sql.functions import monotonically_increasing_id

    return left.withColumn(_ID, monotonically_increasing_id())


def kept_once(pairs: DataFrame, where: str) -> DataFrame:
    """Return the pairs for which a column is true and, for rows without any, one with a null right side."""
    held = f"(`r.{ROW}` IS NOT NULL AND coalesce(`{where}`, FALSE))"
    names = [name for name in pairs.columns if name != where]
    judged = pairs.selectExpr(
        *(f"`{name}`" for name in names),
        f"{held} AS `{_KEPT}`",
        f"max({held}) OVER (PARTITION BY `l.{_ID}`) AS `#any`",
        f"row_number() OVER (PARTITION BY `l.{_ID}` ORDER BY `r.{ROW}`) AS `{_TURN}`",
    ).where(f"`{_KEPT}` OR (NOT `#any` AND `{_TURN}` = 1)")
    return judged.selectExpr(*(_nothing_unless_kept(name) for name in names))


def _nothing_unless_kept(name: str) -> str:
    return f"if(`{_KEPT}`, `{name}`, NULL) AS `{name}`" if name.startswith("r.") else f"`{name}`"


def place(position: str) -> str:
    """Return the position of a pair: that of the row, then the index in the table."""
    return f"concat(`l.{position}`, array(coalesce(`r.{ROW}`, -1L)))"
