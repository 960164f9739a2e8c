"""Chains: random queries that read each other's results, each with the SQL of the composed plan."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from chaos.workload import CAP, LISTED, TABLE, ChaosQuery, Check, near_sql, windows_sql
from mavstream import query, table

_CHAINS = 4
_ALL = {"left": "all_left", "right": "all_right"}
"""The queries that chains begin with: they give all rows of a stream."""


class _Rows(NamedTuple):
    """A query that gives rows of streams, with all of their columns."""

    name: str
    sql: str
    joins: bool
    """Whether all of its rows are of the left stream, whose positions are known: they may join the table."""


def chains(seed: int) -> Iterator[ChaosQuery]:
    """Yield the queries of the chains of a seed, each behind those that it reads."""
    random = Random(f"chains {seed}")
    for number in range(_CHAINS):
        side = random.choice(("left", "right"))
        rows = _Rows(_ALL[side], f"FROM {side}_", joins=side == "left")
        for step in range(random.choice((0, 1, 1, 2))):
            made, rows = _passed_on(f"chain_{number}_{step}", rows, random)
            yield made
        yield from _top(f"chain_{number}", rows, random)


def _passed_on(name: str, rows: _Rows, random: Random) -> tuple[ChaosQuery, _Rows]:
    """Return a query that passes rows on, and what it gives."""
    source, (share, rest) = query(rows.name), (random.randint(2, 5), random.randint(0, 1))
    match random.choice(("select", "select", "project", "union")):
        case "select":
            flow = source.where(f"v % {share} != {rest}")
            sql, joins = f"SELECT * FROM ({rows.sql}) WHERE v % {share} <> {rest}", rows.joins
        case "project":
            flow = source.project(ts="ts", n="n", k="k", v=f"v + {share}", x="x")
            sql, joins = f"SELECT ts, n, k, v + {share} AS v, x FROM ({rows.sql})", rows.joins
        case _:
            flow = source.union(query(_ALL["right"]))
            sql, joins = f"({rows.sql}) UNION ALL (FROM right_)", False
    return ChaosQuery(name, flow, sql), _Rows(name, sql, joins)


def _top(name: str, rows: _Rows, random: Random) -> Iterator[ChaosQuery]:
    """Yield the last query of a chain; sometimes another one reads its windows."""
    source, size = query(rows.name), random.choice((200, 400, 1000))
    kinds = ("tumbling", "hopping", "join", *(["table"] if rows.joins else []))
    match random.choice(kinds):
        case "tumbling":
            flow = source.window(f"{size}ms").by("k").agg(n="count(*)", total="sum(v)")
            sql = windows_sql(f"({rows.sql})", size, size, "k, count(*) AS n, sum(v) AS total")
            yield ChaosQuery(name, flow, sql)
            above = query(name).where("n > 2").project(k="k", mean="total / n")
            yield ChaosQuery(f"{name}_means", above, f"SELECT k, total / n FROM ({sql}) WHERE n > 2")
        case "hopping":
            flow = source.window(f"{3 * size}ms", hop=f"{size}ms").by("k").agg(mean="avg(x)", most="max(v)")
            yield ChaosQuery(name, flow, windows_sql(f"({rows.sql})", 3 * size, size, "k, avg(x), max(v)"))
        case "join":
            near = random.choice((5, 10))
            flow = source.join(
                query(_ALL["right"]),
                on=["k"],
                within=f"{near}ms",
                where="l.v < r.v",
                compute={"l": "l.n", "r": "r.n", "v": "l.v"},
            )
            sql = near_sql("l.n, r.n, l.v", f"({rows.sql})", "right_", near, "l.v < r.v")
            yield ChaosQuery(name, flow, sql)
        case _:
            flow = source.join(
                table(TABLE),
                on="k",
                how="left",
                where="l.v > r.cap",
                compute={"n": "l.n", "label": "r.label", "generation": "r.generation"},
            )
            label = f"CASE WHEN k < {LISTED} AND v > {CAP} * k THEN 'key ' || k END"
            yield ChaosQuery(name, flow, f"SELECT n, {label}, NULL FROM ({rows.sql})", Check.VERSIONS)
