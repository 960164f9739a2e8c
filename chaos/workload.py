"""The workload: streams, a table and queries, each query with the SQL that gives the same answers.

Row `n` of a stream is a function of `n` and of the stream: what was acked can be computed instead of stored.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from mavstream import stream, table

STREAMS = ("left", "right")
TABLE = "names"
CLASSES = {"urgent": 8, "usual": 4, "slow": 1}
START_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z, where windows of all sizes begin
STEP_US = 5_000  # between two rows of a stream
KEYS = 6
FIELDS = [
    {"name": "ts", "type": "timestamp"},
    {"name": "n", "type": "int"},
    {"name": "k", "type": "int"},
    {"name": "v", "type": "int"},
    {"name": "x", "type": "float"},
]
TABLE_ROWS = [{"k": key, "label": f"key {key}", "cap": 15 * key} for key in range(KEYS - 1)]
_ROWS_PER_WINDOW = 64


class ChaosQuery(NamedTuple):
    """A query with its plan and its SQL over the tables `left`, `right` and `names`."""

    name: str
    flow: Any
    sql: str
    """The answers, with the columns in the order of the query's."""
    pausable: bool = False
    """Whether it may be paused: it then gives each row once, by its number, apart from those of the pause."""


def rows(name: str, first: int, stop: int) -> pa.Table:
    """Return the rows of a stream from one number to before another."""
    n = np.arange(first, stop, dtype=np.int64)
    # A few steps of a generator of numbers: cheap, and the same in every process.
    mixed = (n * 2654435761 + STREAMS.index(name) * 97_531) & 0xFFFFFFFF
    mixed = (mixed ^ (mixed >> 13)) * 1274126177 & 0xFFFFFFFF
    at = (START_US + n * STEP_US).astype("datetime64[us]")
    return pa.table(
        {
            "ts": pa.array(at, pa.timestamp("us", tz="UTC")),
            "n": n,
            "k": (mixed >> 5) % KEYS,
            "v": (mixed >> 9) % 100,
            "x": ((mixed >> 3) % 100_003) / 7.0,
        }
    )


def queries(seed: int) -> list[ChaosQuery]:
    """Return the queries of a seed: always the same kinds, with other numbers."""
    random = Random(seed)
    low, high = random.randint(10, 40), random.randint(50, 80)
    size, near = random.choice((400, 500, 1000)), random.choice((5, 10, 20))
    left, right = stream("left"), stream("right")
    prefix = left.where(f"v > {low}")
    both = left.union(right)
    return [
        ChaosQuery("all_left", left.where("n >= 0"), "SELECT ts, n, k, v, x FROM left_"),
        ChaosQuery("all_right", right.where("n >= 0"), "SELECT ts, n, k, v, x FROM right_"),
        ChaosQuery("paused", left.where("v >= 0").project(n="n"), "SELECT n FROM left_", pausable=True),
        ChaosQuery(
            "select",
            right.where(f"v < {high}").project(n="n", twice="v * 2", ts="ts"),
            f"SELECT n, v * 2, ts FROM right_ WHERE v < {high}",
        ),
        ChaosQuery(
            "tumbling",
            left.window(f"{size}ms").by("k").agg(n="count(*)", total="sum(v)", mean="avg(x)"),
            _windows("left_", size, size, "k, count(*), sum(v), avg(x)"),
        ),
        ChaosQuery(
            "hopping",
            right.window(f"{4 * size}ms", hop=f"{size}ms").by("k").agg(n="count(*)", most="max(v)"),
            _windows("right_", 4 * size, size, "k, count(*), max(v)"),
        ),
        ChaosQuery(
            "joined",
            left.join(
                right, on=["k"], within=f"{near}ms", where="l.v > r.v", compute={"l": "l.n", "r": "r.n"}
            ),
            "SELECT l.n, r.n FROM left_ l JOIN right_ r ON l.k = r.k AND l.v > r.v "
            f"AND abs(l.n - r.n) * {STEP_US} <= {near * 1000}",
        ),
        ChaosQuery(
            "union",
            both.window(f"{size}ms").by("k").agg(mean="avg(x)", n="count(*)"),
            _windows("(FROM left_ UNION ALL FROM right_)", size, size, "k, avg(x), count(*)"),
        ),
        ChaosQuery(
            "except",
            left.project(k="k", v="v").except_(right.project(k="k", v="v"), f"{size}ms"),
            _except(size),
        ),
        ChaosQuery(
            "by_rows",
            left.rows_window(_ROWS_PER_WINDOW).agg(total="sum(v)", first="min(n)"),
            f"SELECT sum(v), min(n), min(n), min(n) + {_ROWS_PER_WINDOW} FROM left_ "
            f"GROUP BY n // {_ROWS_PER_WINDOW} HAVING count(*) = {_ROWS_PER_WINDOW}",
        ),
        ChaosQuery(
            "looked_up",
            right.join(
                table(TABLE),
                on="k",
                how="left",
                where="l.v > r.cap",
                compute={"n": "l.n", "label": "r.label"},
            ),
            "SELECT n, label FROM right_ LEFT JOIN names ON right_.k = names.k AND v > cap",
        ),
        *(
            ChaosQuery(
                f"shared_{number}",
                prefix.window(f"{size}ms").by("k").agg(n=aggregate),
                _windows(f"(FROM left_ WHERE v > {low})", size, size, f"k, {aggregate}"),
            )
            for number, aggregate in enumerate(("count(*)", "sum(v)", "min(n)"))
        ),
        ChaosQuery("shared_3", prefix.project(n="n"), f"SELECT n FROM left_ WHERE v > {low}"),
        ChaosQuery("shared_4", prefix.project(n="n"), f"SELECT n FROM left_ WHERE v > {low}"),
    ]


def _windows(rows_: str, size: int, hop: int, columns: str) -> str:
    """Return the SQL of an aggregate by key over windows by time (ms), with the window's start and end."""
    size_us, hop_us = size * 1000, hop * 1000
    return (
        f"SELECT {columns}, make_timestamp(w), make_timestamp(w + {size_us}) FROM ("
        f"SELECT *, unnest(range(epoch_us(ts) // {hop_us} * {hop_us} - {size_us - hop_us}, "
        f"epoch_us(ts) // {hop_us} * {hop_us} + 1, {hop_us})) AS w FROM {rows_}) GROUP BY k, w"
    )


def _except(size: int) -> str:
    bucket = f"epoch_us(ts) // {size * 1000} AS w"
    return (
        f"SELECT k, v, make_timestamp(w * {size * 1000}), make_timestamp((w + 1) * {size * 1000}) "
        f"FROM (SELECT *, {bucket} FROM left_) l WHERE NOT EXISTS ("
        f"SELECT 1 FROM (SELECT *, {bucket} FROM right_) r WHERE r.w = l.w AND r.k = l.k AND r.v = l.v)"
    )
