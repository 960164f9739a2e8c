"""Windows in SQL: one row per row and window that it is in, with hidden columns."""

from __future__ import annotations

from collections.abc import Sequence

from mavstream_protocol.plans.windows import RowWindow, SessionWindow, TimeWindow

# DuckDB's `//` cuts towards zero for negative numbers.
FLOOR_DIVISION = "CREATE MACRO floordiv(a, b) AS (a - ((a % b + b) % b)) // b"
HIDDEN = "_pos, _time, _wm"
"""Position, time in us, and the watermark just ahead of the row (null: it cannot be late)."""


def windowed(table: str, window: TimeWindow | RowWindow, rows: str) -> str:
    """Return a query that gives each row of a table once per window: adds `_k`, `_start`, `_end`.

    `rows` is how many rows each input of the operator has, as SQL: windows by rows need as many. In these
    `_time` is when a row counts as having come, no earlier than the watermark ahead of it.
    """
    until = "NULL" if window.until is None else str(window.until)
    if isinstance(window, TimeWindow):
        source = f"SELECT *, _time AS _at FROM {table}"
        kept = "_wm IS NULL OR _end > _wm"
    else:
        source = (
            f"SELECT * REPLACE (greatest(_time, _wm) AS _time), "
            f"row_number() OVER (ORDER BY _pos) - 1 AS _at FROM {table}"
        )
        kept = f"_end <= {rows}"
    origin, size, hop = window.begin or 0, window.size, window.step
    first = f"floordiv(_at - {origin} - {size}, {hop}) + 1"
    if window.begin is not None or isinstance(window, RowWindow):
        first = f"greatest(0, {first})"
    return (
        f"SELECT * FROM (SELECT *, {origin} + _k * {hop} AS _start, "
        f"least({origin} + _k * {hop} + {size}, {until}) AS _end FROM "
        f"(SELECT *, unnest(range({first}, floordiv(_at - {origin}, {hop}) + 1)) AS _k FROM ({source}) "
        f"WHERE {until} IS NULL OR _at < {until})) WHERE {kept}"
    )


def in_sessions(table: str, window: SessionWindow, by: Sequence[str]) -> str:
    """Return a query that gives each row of a table with its session: adds `_k`, `_start`, `_end`.

    Rows are numbered by the gaps before them: an island between two gaps is a session.
    """
    until = "NULL" if window.until is None else str(window.until)
    begin = "NULL" if window.begin is None else str(window.begin)
    group = f"PARTITION BY {', '.join(by)}" if by else ""
    whole = ", ".join([*by, "_session"])
    rows = (
        f"SELECT *, coalesce(_time - lag(_time) OVER ({group} ORDER BY _time) >= {window.gap}, TRUE) AS _new "
        f"FROM {table} WHERE coalesce(_time >= _wm, TRUE) AND coalesce(_time >= {begin}, TRUE) "
        f"AND coalesce(_time < {until}, TRUE)"
    )
    return (
        f"SELECT *, least(_k, {until}) AS _end FROM "
        f"(SELECT *, min(_time) OVER (PARTITION BY {whole}) AS _start, "
        f"max(_time) OVER (PARTITION BY {whole}) + {window.gap} AS _k FROM "
        f"(SELECT *, sum(_new::INT) OVER ({group} ORDER BY _time) AS _session FROM ({rows})))"
    )


def bounds(window: TimeWindow | RowWindow | SessionWindow, prefix: str = "") -> list[str]:
    """Return the two columns that a windowed operator adds."""
    if isinstance(window, RowWindow):
        return [f"{prefix}_start AS window_start", f"{prefix}_end AS window_end"]
    return [
        f"make_timestamp({prefix}_start) AS window_start",
        f"make_timestamp({prefix}_end) AS window_end",
    ]
