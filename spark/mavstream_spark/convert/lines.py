"""Lines: what every reader of raw text makes of them.

A reader adds to each line the columns of its streams and, in `#stream`, `#kind` and `#reason`, where it
belongs or why it cannot be used.
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
_PATH, _BLOCK, _PLACE = "#path", "#block", "#place"
"""Which piece of which file a line was read with, and its place among all lines of a task."""
NUMBER = "#number"
STREAM = "#stream"
KIND, REASON = "#kind", "#reason"
"""In a few words, to be counted; and in full, for the side file. Null where the line is good."""


@dataclass(frozen=True, slots=True)
class Output:
    """A stream of the result, and its columns as SQL over a parsed line."""

    spec: StreamSpec
    columns: Mapping[str, str]


class Reader(Protocol):
    """Reads one format."""

    def parsed(self, lines: DataFrame) -> DataFrame:
        """Add to lines what was read from them."""

    def outputs(self) -> Mapping[str, Output]:
        """Return all streams that lines can belong to."""


def read_lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the lines of files; raises UnreadableInput."""
    from pyspark.errors import AnalysisException

    try:
        frame = spark.read.text(list(paths))
    except AnalysisException as error:
        told = str(error).splitlines()[0][:300]
        raise UnreadableInput(f"'{', '.join(paths)}' cannot be read: {told}") from None
    return frame.selectExpr(
        f"value AS `{LINE}`",
        f"_metadata.file_name AS `{FILE}`",
        f"_metadata.file_path AS `{_PATH}`",
        f"_metadata.file_block_start AS `{_BLOCK}`",
        f"monotonically_increasing_id() AS `{_PLACE}`",
    )


def without_empty(lines: DataFrame) -> DataFrame:
    """Return the lines that say something."""
    return lines.where(f"trim(`{LINE}`) <> ''")


def with_numbers(some: DataFrame, lines: DataFrame) -> DataFrame:
    """Add to some of the lines their numbers in their files, from 1, in `#number`.

    Large files are read in pieces, each by one task from its first line to its last. So a line's number is
    its place in the piece and the lines of all pieces before it, which one more pass counts.
    """
    pieces = lines.groupBy(f"`{_PATH}`", f"`{_BLOCK}`").agg(
        *_expressions(f"min(`{_PLACE}`) AS `#first`", "count(1) AS `#rows`")
    )
    before = f"sum(`#rows`) OVER (PARTITION BY `{_PATH}` ORDER BY `{_BLOCK}`) - `#rows`"
    pieces = pieces.selectExpr(f"`{_PATH}`", f"`{_BLOCK}`", "`#first`", f"{before} AS `#before`")
    found = some.join(pieces, [_PATH, _BLOCK])
    return found.selectExpr("*", f"`#before` + `{_PLACE}` - `#first` + 1 AS `{NUMBER}`")


def _expressions(*texts: str) -> list[Any]:
    from pyspark.sql.functions import expr

    return [expr(text) for text in texts]
