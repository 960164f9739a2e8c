"""Lines of raw files, and the interface of the readers that parse them.

A reader adds to each line the columns of its streams and `#stream`, the stream that it belongs to, or `#kind`
and `#reason`, why it belongs to none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mavstream_protocol import StreamSpec
from mavstream_spark.errors import UnreadableInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINE, FILE = "#line", "#file"
_PATH, _BLOCK, _INDEX = "#path", "#block", "#index"
"""The file and the block of it that a line was read with, and its index among the lines of the task."""
NUMBER = "#number"
STREAM = "#stream"
KIND, REASON = "#kind", "#reason"
"""Why a line is bad: in a few words, to be counted, and in full. Null if the line is good."""


@dataclass(frozen=True, slots=True)
class Output:
    """A stream of the dataset, and its columns as SQL over a parsed line."""

    spec: StreamSpec
    columns: Mapping[str, str]


class Reader(Protocol):
    """Parses one format."""

    def parsed(self, lines: DataFrame) -> DataFrame:
        """Return the lines with the columns that were parsed from them."""

    def outputs(self) -> Mapping[str, Output]:
        """Return the streams that lines can belong to."""


def read_lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return all lines of files; raises UnreadableInput."""
    from pyspark.errors import AnalysisException

    try:
        frame = spark.read.text(list(paths))
    except AnalysisException as error:
        reason = str(error).splitlines()[0][:300]
        raise UnreadableInput(f"'{', '.join(paths)}' cannot be read: {reason}") from None
    return frame.selectExpr(
        f"value AS `{LINE}`",
        f"_metadata.file_name AS `{FILE}`",
        f"_metadata.file_path AS `{_PATH}`",
        f"_metadata.file_block_start AS `{_BLOCK}`",
        f"monotonically_increasing_id() AS `{_INDEX}`",
    )


def without_empty(lines: DataFrame) -> DataFrame:
    """Return the lines that are not blank."""
    return lines.where(f"trim(`{LINE}`) <> ''")


def with_numbers(some: DataFrame, lines: DataFrame) -> DataFrame:
    """Return some of the lines with their line numbers, from 1, in `#number`.

    Large files are read in blocks, each by one task from its first line to its last. So a line's number is
    its index in the block plus the lines of all blocks before it, which one more pass counts.
    """
    blocks = lines.groupBy(f"`{_PATH}`", f"`{_BLOCK}`").agg(
        *_expressions(f"min(`{_INDEX}`) AS `#first`", "count(1) AS `#rows`")
    )
    before = f"sum(`#rows`) OVER (PARTITION BY `{_PATH}` ORDER BY `{_BLOCK}`) - `#rows`"
    blocks = blocks.selectExpr(f"`{_PATH}`", f"`{_BLOCK}`", "`#first`", f"{before} AS `#before`")
    numbered = some.join(blocks, [_PATH, _BLOCK])
    return numbered.selectExpr("*", f"`#before` + `{_INDEX}` - `#first` + 1 AS `{NUMBER}`")


def _expressions(*texts: str) -> list[Any]:
    from pyspark.sql.functions import expr

    return [expr(text) for text in texts]
