"""The workload: streams, a table and queries, each query with the SQL that gives the same answers.

Row `n` of a stream is a function of `n` and of the stream: what was acked can be computed instead of stored.
A stream with two producers gets the even rows from one of them and the odd ones from the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from random import Random
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from mavstream import stream, table

STREAMS = ("left", "right")
LATENESS = {"left": "0s", "right": "500ms"}
"""More than the producers of a stream are apart before both have sent their first rows."""
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
LISTED = KEYS - 1
"""Keys below this are in the table."""
CAP = 15
OPTIMIZER = {
    "period": "100ms",
    "rules": {"policy": False, "rank": False},
    "pace": {"probation": "300ms", "bar": "100ms", "calm": "300ms"},
}
"""Lets the optimizer migrate plans and shed rows, and undo both, all the time: some targets cannot be met."""
_UNATTAINABLE = {"latency": {"p95": "1us"}}
_ROWS_PER_WINDOW = 64


class Part(NamedTuple):
    """The rows of a stream that one producer sends: every `of`-th one, from `first` on."""

    stream: str
    first: int = 0
    of: int = 1


PRODUCERS = {"chaos_0": (Part("left"), Part("right", 0, 2)), "chaos_1": (Part("right", 1, 2),)}
"""The parts that each producer sends."""
Acked: TypeAlias = Mapping[Part, int]
"""How many rows of each part were acked, which are its first ones."""


class Check(Enum):
    """How the answers of a query are checked."""

    EQUAL = auto()
    """They are those of its SQL."""
    PAUSED = auto()
    """They are the numbers of all rows, apart from those of its pauses."""
    SHED = auto()
    """They are the numbers of all rows, apart from as many as it has counted as shed."""
    VERSIONS = auto()
    """Each row joins the version of the table that was current when it arrived."""


class ChaosQuery(NamedTuple):
    """A query with its plan and its SQL over the tables `left`, `right` and `names`."""

    name: str
    flow: Any
    sql: str
    """The answers, with the columns in the order of the query's."""
    check: Check = Check.EQUAL
    qos: Any = None


def table_rows(generation: int) -> list[dict[str, Any]]:
    """Return the rows of a version of the table."""
    return [
        {"k": key, "label": f"key {key}", "cap": CAP * key, "generation": generation} for key in range(LISTED)
    ]


def rows(part: Part, first: int, stop: int) -> pa.Table:
    """Return the rows of a part of a stream, from its `first`-th one to before its `stop`-th one."""
    name, n = part.stream, part.first + part.of * np.arange(first, stop, dtype=np.int64)
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
        ChaosQuery("paused", left.where("v >= 0").project(n="n"), "SELECT n FROM left_", Check.PAUSED),
        ChaosQuery(
            "shed",
            left.where("k >= 0").project(n="n"),
            "SELECT n FROM left_",
            Check.SHED,
            {"max_loss": "40%"},
        ),
        ChaosQuery(
            "migrated_selects",
            left.where("sqrt(x + v * v) + sqrt(x) >= 0 AND n >= 0")
            .where(f"v > {high}")
            .window(f"{size}ms")
            .by("k")
            .agg(n="count(*)", mean="avg(x)"),
            windows_sql(f"(FROM left_ WHERE v > {high})", size, size, "k, count(*), avg(x)"),
            qos=_UNATTAINABLE,
        ),
        ChaosQuery(
            "migrated_join",
            left.join(
                right, on=["k"], within=f"{near}ms", compute={"l": "l.n", "r": "r.n", "v": "l.v", "w": "r.v"}
            ).where(f"v > {high} AND w > {high}"),
            near_sql("l.n, r.n, l.v, r.v", "left_", "right_", near, f"l.v > {high} AND r.v > {high}"),
            qos=_UNATTAINABLE,
        ),
        ChaosQuery(
            "select",
            right.where(f"v < {high}").project(n="n", twice="v * 2", ts="ts"),
            f"SELECT n, v * 2, ts FROM right_ WHERE v < {high}",
        ),
        ChaosQuery(
            "tumbling",
            left.window(f"{size}ms").by("k").agg(n="count(*)", total="sum(v)", mean="avg(x)"),
            windows_sql("left_", size, size, "k, count(*), sum(v), avg(x)"),
        ),
        ChaosQuery(
            "hopping",
            right.window(f"{4 * size}ms", hop=f"{size}ms").by("k").agg(n="count(*)", most="max(v)"),
            windows_sql("right_", 4 * size, size, "k, count(*), max(v)"),
        ),
        ChaosQuery(
            "joined",
            left.join(
                right, on=["k"], within=f"{near}ms", where="l.v > r.v", compute={"l": "l.n", "r": "r.n"}
            ),
            near_sql("l.n, r.n", "left_", "right_", near, "l.v > r.v"),
        ),
        ChaosQuery(
            "union",
            both.window(f"{size}ms").by("k").agg(mean="avg(x)", n="count(*)"),
            windows_sql("(FROM left_ UNION ALL FROM right_)", size, size, "k, avg(x), count(*)"),
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
            left.join(
                table(TABLE),
                on="k",
                how="left",
                where="l.v > r.cap",
                compute={"n": "l.n", "label": "r.label", "generation": "r.generation"},
            ),
            f"SELECT n, CASE WHEN k < {LISTED} AND v > {CAP} * k THEN 'key ' || k END, NULL FROM left_",
            Check.VERSIONS,
        ),
        *(
            ChaosQuery(
                f"shared_{number}",
                prefix.window(f"{size}ms").by("k").agg(n=aggregate),
                windows_sql(f"(FROM left_ WHERE v > {low})", size, size, f"k, {aggregate}"),
            )
            for number, aggregate in enumerate(("count(*)", "sum(v)", "min(n)"))
        ),
        ChaosQuery("shared_3", prefix.project(n="n"), f"SELECT n FROM left_ WHERE v > {low}"),
        ChaosQuery("shared_4", prefix.project(n="n"), f"SELECT n FROM left_ WHERE v > {low}"),
    ]


def bounded(seed: int, number: int, row: int) -> ChaosQuery:
    """Return a query that ends by itself some windows after a row of the left stream."""
    size_us = 1000 * Random(seed).choice((200, 300, 500))
    until = START_US + (row * STEP_US // size_us + 3) * size_us
    flow = stream("left").window(f"{size_us}us", until=until).by("k").agg(n="count(*)", total="sum(v)")
    past = f"(FROM left_ WHERE epoch_us(ts) < {until})"
    return ChaosQuery(
        f"bounded_{number}", flow, windows_sql(past, size_us // 1000, size_us // 1000, "k, count(*), sum(v)")
    )


def windows_sql(rows_: str, size: int, hop: int, columns: str) -> str:
    """Return the SQL of an aggregate by key over windows by time (ms), with the window's start and end."""
    size_us, hop_us = size * 1000, hop * 1000
    return (
        f"SELECT {columns}, make_timestamp(w), make_timestamp(w + {size_us}) FROM ("
        f"SELECT *, unnest(range(epoch_us(ts) // {hop_us} * {hop_us} - {size_us - hop_us}, "
        f"epoch_us(ts) // {hop_us} * {hop_us} + 1, {hop_us})) AS w FROM {rows_}) GROUP BY k, w"
    )


def near_sql(columns: str, left: str, right: str, near: int, where: str) -> str:
    """Return the SQL of a join by key of rows at most `near` ms apart, which also fulfil `where`.

    Both are divided into buckets of numbers, so that not all pairs of a key have to be compared.
    """
    reach = near * 1000 // STEP_US
    width = reach + 1
    buckets = f"unnest([n // {width} - 1, n // {width}, n // {width} + 1]) AS bucket"
    return (
        f"SELECT {columns} FROM (SELECT *, {buckets} FROM {left}) l "
        f"JOIN (SELECT *, n // {width} AS bucket FROM {right}) r "
        f"ON l.k = r.k AND l.bucket = r.bucket AND abs(l.n - r.n) <= {reach} AND {where}"
    )


def _except(size: int) -> str:
    bucket = f"epoch_us(ts) // {size * 1000} AS w"
    return (
        f"SELECT k, v, make_timestamp(w * {size * 1000}), make_timestamp((w + 1) * {size * 1000}) "
        f"FROM (SELECT *, {bucket} FROM left_) l WHERE NOT EXISTS ("
        f"SELECT 1 FROM (SELECT *, {bucket} FROM right_) r WHERE r.w = l.w AND r.k = l.k AND r.v = l.v)"
    )
