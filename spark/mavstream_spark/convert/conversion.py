"""Conversion of raw logs to a dataset."""

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
class _Summary:
    """Counts and times of all lines, from a first pass over them."""

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
    """Write the streams of raw files and the lines that could not be converted; returns the manifest.

    Raises UnreadableInput if no line could be converted.
    """
    progress = progress or Silent()
    lines = read_lines(spark, paths)
    parsed = reader.parsed(without_empty(lines))
    outputs = reader.outputs()
    with progress.step("reading"):
        summary = _summarize(
            parsed, {name: output.columns[_time(output)] for name, output in outputs.items()}
        )
    progress.done("reading", f"{sum(summary.rows.values()):,} good lines, {summary.bad:,} bad ones")
    if summary.first is None or summary.last is None:
        reasons = ", ".join(f"{count} times {kind}" for kind, count in summary.reasons.items())
        raise UnreadableInput(
            f"'{', '.join(paths)}' has no line that could be converted ({reasons or 'no lines'}): "
            "check the format"
        )
    begin, end = summary.first // _DAY * _DAY, (summary.last // _DAY + 1) * _DAY
    recorded: dict[str, Any] = {"files": list(paths)}
    with new_dataset(
        spark, folder, "converted", recorded, begin=begin, end=end, overwrite=overwrite
    ) as writer:
        for name, rows in sorted(summary.rows.items()):
            with progress.step(name):
                entry = writer.write_frame(outputs[name].spec, _rows(parsed, name, outputs[name]), rows)
            progress.done(name, entry.summary())
        with progress.step(BAD_LINES):
            writer.bad_lines = _write_bad_lines(spark, writer, parsed, lines, summary)
        progress.done(BAD_LINES, f"{summary.bad:,} lines")
    return writer.manifest("converted", recorded)


def _time(output: Output) -> str:
    assert output.spec.event_time is not None
    return output.spec.event_time


def _summarize(parsed: DataFrame, times: dict[str, str]) -> _Summary:
    """Count lines by stream and kind of reason, and find the first and the last time."""
    from pyspark.sql.functions import expr

    cases = " ".join(f"WHEN '{name}' THEN unix_micros({time})" for name, time in times.items())
    at = f"CASE `{STREAM}` {cases} END"
    counted = parsed.groupBy(f"`{STREAM}`", f"`{KIND}`").agg(
        expr("count(1)").alias("rows"),
        expr(f"min({at})").alias("first"),
        expr(f"max({at})").alias("last"),
    )
    summary = _Summary()
    for row in counted.collect():
        if row[STREAM] is None:
            summary.reasons[row[KIND]] = row["rows"]
            continue
        summary.rows[row[STREAM]] = row["rows"]
        summary.first = row["first"] if summary.first is None else min(summary.first, row["first"])
        summary.last = row["last"] if summary.last is None else max(summary.last, row["last"])
    return summary


def _rows(parsed: DataFrame, name: str, output: Output) -> DataFrame:
    columns = [f"{value} AS `{column}`" for column, value in output.columns.items()]
    return parsed.where(f"`{STREAM}` = '{name}'").selectExpr(*columns)


def _write_bad_lines(
    spark: SparkSession, writer: DatasetWriter, parsed: DataFrame, lines: DataFrame, summary: _Summary
) -> BadLines:
    if not summary.bad:
        return BadLines(rows=0, reasons={}, files=())
    folder = f"{writer.folder}/{BAD_LINES}"
    bad = with_numbers(parsed.where(f"`{KIND}` IS NOT NULL"), lines).selectExpr(
        f"`{FILE}` AS file", f"`{NUMBER}` AS number", f"`{LINE}` AS line", f"`{REASON}` AS reason"
    )
    # One file: bad lines are few, and people will open it.
    bad.repartition(1).sortWithinPartitions("file", "number").write.json(folder)
    names = Storage(spark, folder).names(folder)
    files = tuple(DataFile(path=f"{BAD_LINES}/{name}", rows=summary.bad) for name in names)
    return BadLines(rows=summary.bad, reasons=dict(sorted(summary.reasons.items())), files=files)
