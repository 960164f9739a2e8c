"""Conversion of raw logs into a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mavstream_protocol.manifest import BadLines, DataFile, Manifest
from mavstream_spark.convert.lines import (
    FILE,
    KIND,
    LINE,
    NUMBER,
    REASON,
    STREAM,
    Output,
    Reader,
    read_lines,
    with_numbers,
    without_empty,
)
from mavstream_spark.datasets.storage import Storage
from mavstream_spark.datasets.writer import DatasetWriter, new_dataset
from mavstream_spark.errors import UnreadableInput
from mavstream_spark.progress import Progress, Silent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BAD_LINES = "bad_lines"
_DAY = 86_400_000_000


@dataclass(slots=True)
class _Found:
    """What a first pass over the lines saw."""

    rows: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    first: int | None = None
    last: int | None = None

    @property
    def bad(self) -> int:
        return sum(self.reasons.values())


def convert(
    spark: SparkSession,
    paths: Sequence[str],
    folder: str,
    reader: Reader,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Write the streams that raw files hold, and beside them the lines that could not be read.

    Raises UnreadableInput if no line could be.
    """
    progress = progress or Silent()
    lines = read_lines(spark, paths)
    parsed = reader.parsed(without_empty(lines))
    outputs = reader.outputs()
    with progress.step("reading"):
        found = _look(parsed, {name: output.columns[_time(output)] for name, output in outputs.items()})
    progress.done("reading", f"{sum(found.rows.values()):,} good lines, {found.bad:,} bad ones")
    if found.first is None or found.last is None:
        reasons = ", ".join(f"{count} times {kind}" for kind, count in found.reasons.items())
        raise UnreadableInput(
            f"'{', '.join(paths)}' has no line that could be converted ({reasons or 'no lines'}): "
            "check the format"
        )
    begin, end = found.first // _DAY * _DAY, (found.last // _DAY + 1) * _DAY
    told: dict[str, Any] = {"files": list(paths)}
    with new_dataset(spark, folder, "converted", told, begin=begin, end=end, overwrite=overwrite) as writer:
        for name, rows in sorted(found.rows.items()):
            with progress.step(name):
                entry = writer.add_stream(outputs[name].spec, _of(parsed, name, outputs[name]), rows)
            progress.done(name, entry.summary())
        with progress.step(BAD_LINES):
            writer.bad_lines = _keep_bad_lines(spark, writer, parsed, lines, found)
        progress.done(BAD_LINES, f"{found.bad:,} lines")
    return writer.manifest("converted", told)


def _time(output: Output) -> str:
    assert output.spec.event_time is not None
    return output.spec.event_time


def _look(parsed: DataFrame, times: dict[str, str]) -> _Found:
    """Count lines by stream and reason, and find the first and the last time."""
    from pyspark.sql.functions import expr

    cases = " ".join(f"WHEN '{name}' THEN unix_micros({time})" for name, time in times.items())
    at = f"CASE `{STREAM}` {cases} END"
    counted = parsed.groupBy(f"`{STREAM}`", f"`{KIND}`").agg(
        expr("count(1)").alias("rows"),
        expr(f"min({at})").alias("first"),
        expr(f"max({at})").alias("last"),
    )
    found = _Found()
    for row in counted.collect():
        if row[STREAM] is None:
            found.reasons[row[KIND]] = row["rows"]
            continue
        found.rows[row[STREAM]] = row["rows"]
        found.first = row["first"] if found.first is None else min(found.first, row["first"])
        found.last = row["last"] if found.last is None else max(found.last, row["last"])
    return found


def _of(parsed: DataFrame, name: str, output: Output) -> DataFrame:
    columns = [f"{value} AS `{column}`" for column, value in output.columns.items()]
    return parsed.where(f"`{STREAM}` = '{name}'").selectExpr(*columns)


def _keep_bad_lines(
    spark: SparkSession, writer: DatasetWriter, parsed: DataFrame, lines: DataFrame, found: _Found
) -> BadLines:
    if not found.bad:
        return BadLines(rows=0, reasons={}, files=())
    folder = f"{writer.folder}/{BAD_LINES}"
    bad = with_numbers(parsed.where(f"`{KIND}` IS NOT NULL"), lines).selectExpr(
        f"`{FILE}` AS file", f"`{NUMBER}` AS number", f"`{LINE}` AS line", f"`{REASON}` AS reason"
    )
    # One file: bad lines are few, and somebody will want to look at them.
    bad.repartition(1).sortWithinPartitions("file", "number").write.json(folder)
    names = Storage(spark, folder).names(folder)
    files = tuple(DataFile(path=f"{BAD_LINES}/{name}", rows=found.bad) for name in names)
    return BadLines(rows=found.bad, reasons=dict(sorted(found.reasons.items())), files=files)
