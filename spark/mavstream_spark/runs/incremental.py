"""The answers of one micro-batch: those of the plan over the rows that it reads, without earlier ones.

A row is late by the watermark ahead of it in its own stream, never by what Spark has seen. Which windows are
answered follows from the watermarks at the ends of the batch before and of this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from mavstream_protocol.typed_plan import TypedNode, TypedPlan
from mavstream_spark.plans.compiler import Compilation
from mavstream_spark.plans.windows import END, NEW, START, TIME, WATERMARK
from mavstream_spark.runs.batches import MicroBatch
from mavstream_spark.runs.frontiers import lowest_end, window_of
from mavstream_spark.runs.state import Skipped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def answers(plan: TypedPlan, batch: MicroBatch, streams: Mapping[str, DataFrame]) -> DataFrame:
    """Return the new answers of a batch, in the columns of the plan; raises UnsupportedPlan.

    Each stream is a frame as `stream_frame` makes it, with the rows that the batch reads.
    """
    found = _MicroBatchCompilation(plan, batch, streams).frame(plan.root)
    return found.where(f"`{NEW}`").selectExpr(*(f"`{name}`" for name in plan.schema.names))


def stream_frame(rows: DataFrame, start: int, skipped: Iterable[Skipped] = ()) -> DataFrame:
    """Return the rows of a stream for a batch, from rows with metadata; `start` is the first new position."""
    for one in skipped:
        rows = rows.where(f"`_position` < {one.start}L OR `_position` >= {one.stop}L")
    fields = [f"`{name}`" for name in rows.columns if name not in _METADATA]
    return rows.selectExpr(
        *fields,
        f"unix_micros(`_time`) AS `{TIME}`",
        "array(`_position`) AS `#position`",
        f"`_position` >= {start}L AS `{NEW}`",
        f"unix_micros(`_watermark`) AS `{WATERMARK}`",
    )


_METADATA = frozenset({"_position", "_time", "_arrival", "_watermark"})


class _MicroBatchCompilation(Compilation):
    carried = (NEW, WATERMARK)

    def __init__(self, plan: TypedPlan, batch: MicroBatch, streams: Mapping[str, DataFrame]) -> None:
        super().__init__(plan, streams, {})
        self._batch = batch

    def made(self, node: TypedNode, new: str) -> list[str]:
        """Rows of windows and joins are never late."""
        return [f"{new} AS `{NEW}`", f"CAST(NULL AS BIGINT) AS `{WATERMARK}`"]

    def admitted(self, node: TypedNode, frame: DataFrame) -> DataFrame:
        """Rows of windows that close in this batch, or that were closed and are needed above."""
        window, batch = window_of(node), self._batch
        assert window is not None
        first = lowest_end(window, batch.before.reached[node.name], batch.needed[node.name])
        frame = frame.where(f"`{END}` BETWEEN {_long(first)} AND {_long(batch.after.reached[node.name])}")
        if node.name in batch.gaps and not window.partial:
            frame = frame.where(f"`{START}` > {_long(batch.gaps[node.name])}")
        return frame.where(f"`{WATERMARK}` IS NULL OR `{WATERMARK}` < `{END}`")

    def in_time(self, node: TypedNode, frame: DataFrame) -> DataFrame:
        """Rows that are not before the watermark ahead of them."""
        return frame.where(f"`{WATERMARK}` IS NULL OR `{WATERMARK}` <= `{TIME}`")

    def closing(self, node: TypedNode, end: str) -> str:
        """Windows that were not closed at the end of the batch before."""
        return f"{end} > {_long(self._batch.before.reached[node.name])}"


def _long(value: int) -> str:
    """Return a number in SQL; the smallest one has no literal."""
    return f"{max(value, -(1 << 63) + 1)}L" if value >= 0 else f"(-{min(-value, (1 << 63) - 1)}L)"
