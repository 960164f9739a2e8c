"""Lines: what every reader of raw text makes of them.

A reader adds to each line the columns of its streams and, in `#stream`, `#kind` and `#reason`, where it
belongs or why it cannot be used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mavstream_feeder.spark.problems import UnreadableInput
from mavstream_protocol import StreamSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINE, FILE = "#line", "#file"
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
    """Return the lines of files, without empty ones; raises UnreadableInput."""
    from pyspark.errors import AnalysisException

    try:
        frame = spark.read.text(list(paths))
    except AnalysisException as error:
        told = str(error).splitlines()[0][:300]
        raise UnreadableInput(f"'{', '.join(paths)}' cannot be read: {told}") from None
    found = frame.selectExpr(f"value AS `{LINE}`", f"_metadata.file_name AS `{FILE}`")
    return found.where(f"trim(`{LINE}`) <> ''")
