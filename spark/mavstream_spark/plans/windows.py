"""Windows in Spark SQL: rows are repeated for each window that they are in.

Streams of a dataset are in the order of time, so no row is late and every time window is answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mavstream_protocol.plans.windows import RowWindow, SessionWindow, TimeWindow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIME, POSITION = "#time", "#position"
"""Hidden columns: microseconds since 1970, and an array of integers that sorts like the stream."""
NEW, WATERMARK = "#new", "#watermark"
"""Hidden columns in micro-batches: whether the row was not answered before, and the watermark ahead of it."""
NUMBER, START, END = "#window", "#start", "#end"
"""Hidden columns of windowed rows: number and bounds of the window."""


def windowed(frame: DataFrame, window: TimeWindow | RowWindow, rows: int | None = None) -> DataFrame:
    """Return each row once per window that it is in; `rows` limits the rows of windows by rows."""
    at = f"`{TIME}`"
    if isinstance(window, RowWindow):
        at = "`#row`"
        frame = frame.selectExpr("*", f"row_number() OVER (ORDER BY `{POSITION}`) - 1 AS {at}")
    if window.until is not None:
        frame = frame.where(f"{at} < {window.until}")
    origin, size, hop = window.begin or 0, window.size, window.step
    last = _floor_division(f"({at} - {_big(origin)})", hop)
    first = f"({_floor_division(f'({at} - {_big(origin)} - {_big(size)})', hop)} + 1)"
    if window.begin is not None or isinstance(window, RowWindow):
        first = f"greatest(CAST(0 AS BIGINT), {first})"
    # Without this condition a row between two windows would get a sequence that runs backwards.
    frame = frame.where(f"{first} <= {last}")
    numbers = last if size == hop else f"explode(sequence({first}, {last}))"
    frame = frame.selectExpr("*", f"{numbers} AS `{NUMBER}`")
    start = f"({_big(origin)} + `{NUMBER}` * {_big(hop)})"
    end = f"({start} + {_big(size)})"
    if window.until is not None:
        end = f"least({end}, {_big(window.until)})"
    frame = frame.selectExpr("*", f"{start} AS `{START}`", f"{end} AS `{END}`")
    if isinstance(window, RowWindow):
        frame = frame.drop("#row").where(f"`{END}` <= {0 if rows is None else rows}")
    return frame


def in_sessions(frame: DataFrame, window: SessionWindow, by: Sequence[str]) -> DataFrame:
    """Return each row with its session, numbered by its end: rows between two gaps of a group."""
    for bound, sign in ((window.begin, ">="), (window.until, "<")):
        if bound is not None:
            frame = frame.where(f"`{TIME}` {sign} {_big(bound)}")
    keys = ", ".join(f"`{name}`" for name in by)
    group = f"PARTITION BY {keys} " if by else ""
    gap = _big(window.gap)
    begins = f"coalesce(`{TIME}` - lag(`{TIME}`) OVER ({group}ORDER BY `{TIME}`) >= {gap}, TRUE)"
    frame = frame.selectExpr("*", f"CAST({begins} AS INT) AS `#begins`")
    # Rows of the same time are counted together, in whichever order they are.
    frame = frame.selectExpr("*", f"sum(`#begins`) OVER ({group}ORDER BY `{TIME}`) AS `#session`")
    whole = f"PARTITION BY {', '.join([*([keys] if by else []), '`#session`'])}"
    frame = frame.selectExpr(
        "*",
        f"min(`{TIME}`) OVER ({whole}) AS `{START}`",
        f"max(`{TIME}`) OVER ({whole}) + {gap} AS `{NUMBER}`",
    ).drop("#begins", "#session")
    end = f"`{NUMBER}`" if window.until is None else f"least(`{NUMBER}`, {_big(window.until)})"
    return frame.selectExpr("*", f"{end} AS `{END}`")


def bounds(window: TimeWindow | RowWindow | SessionWindow, prefix: str = "") -> list[str]:
    """Return the two columns that a windowed operator adds."""
    start, end = f"`{prefix}{START}`", f"`{prefix}{END}`"
    if not isinstance(window, RowWindow):
        start, end = f"timestamp_micros({start})", f"timestamp_micros({end})"
    return [f"{start} AS `window_start`", f"{end} AS `window_end`"]


def _floor_division(value: str, divisor: int) -> str:
    """Return integer division rounded down, also for times before 1970."""
    by = _big(divisor)
    return f"(({value} - pmod({value}, {by})) DIV {by})"


def _big(value: int) -> str:
    return f"{value}L" if value >= 0 else f"(-{-value}L)"
