"""The queries of the benchmark of longest steps, with their streams and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mavstream_protocol.schema import FieldType
from mavstream_server.columns.column import Column, Ints
from mavstream_server.testing import ManualClock, ScriptedStream, ScriptedTable

_FRAME = 20_000
_SECOND = 1_000_000
_ODD = 0x1E3779B97F4A7C15  # scatters consecutive numbers over all integers

Nodes = dict[str, Any]


class Inputs(NamedTuple):
    """The plan of a case and what it reads."""

    nodes: Nodes
    root: str
    streams: Sequence[ScriptedStream]
    tables: Sequence[ScriptedTable] = ()


class Case(NamedTuple):
    """A query whose operators hold much."""

    make: Callable[[Path, int], Inputs]
    """Writes the streams of a case of so many rows in a directory."""


def _stream(
    path: Path, name: str, fields: str, columns: Mapping[str, Ints], lateness: int = 0
) -> ScriptedStream:
    """Write a complete stream with event time `at`; strings are made of numbers."""
    stream = ScriptedStream(path, name, fields, ManualClock(), event_time="at", lateness=lateness)
    size = len(columns["at"])
    for start in range(0, size, _FRAME):
        stop = min(start + _FRAME, size)
        frame = {field.name: _column(field.type, columns[field.name][start:stop]) for field in stream.schema}
        stream.writer.append(frame, stop - start, 1 + start, producer=0, sequence=0)
    stream.complete()
    return stream


def _column(type_: FieldType, values: Ints) -> Column:
    if type_ is FieldType.STRING:
        return Column.from_list(type_, [f"key number {value}" for value in values.tolist()])
    return Column(values)


def _times(rows: int, seconds: int) -> Ints:
    """Return ascending times over some seconds."""
    return np.arange(rows, dtype=np.int64) * (seconds * _SECOND) // rows


def _scattered(numbers: Ints) -> Ints:
    with np.errstate(over="ignore"):
        return numbers * np.int64(_ODD)


def _grouped(
    window: Mapping[str, Any],
    *,
    compute: Mapping[str, str] | None = None,
    by: Sequence[str] = ("k",),
    fields: str = "at timestamp, k int, g int, x int",
    seconds: int = 2,
    keys: Callable[[int], Ints] = lambda rows: _scattered(np.arange(rows)),
    disordered: bool = False,
) -> Case:
    def make(path: Path, rows: int) -> Inputs:
        columns = {"at": _times(rows, seconds), "k": keys(rows), "x": np.arange(rows) % 5003}
        columns["g"] = np.arange(rows) % 1000
        if disordered:
            columns["at"] += np.random.default_rng(7).integers(0, _SECOND // 2, rows)
        stream = _stream(path, "s", fields, columns, _SECOND if disordered else 0)
        aggregate = {
            "op": "aggregate",
            "input": "in",
            "by": list(by),
            "window": dict(window),
            "compute": dict(compute or {"n": "count(*)", "s": "sum(x)", "a": "avg(x)"}),
        }
        return Inputs({"in": {"op": "source", "stream": "s"}, "groups": aggregate}, "groups", [stream])

    return Case(make)


def _pair(build: Callable[[int], tuple[Nodes, Mapping[str, Ints], Mapping[str, Ints]]]) -> Case:
    """Return a case with two streams, `l` and `r`."""

    def make(path: Path, rows: int) -> Inputs:
        nodes, left, right = build(rows)
        fields = "at timestamp, k int, x int"
        streams = [_stream(path, name, fields, columns) for name, columns in (("l", left), ("r", right))]
        sources = {name: {"op": "source", "stream": name} for name in ("l", "r")}
        return Inputs({**sources, "both": nodes}, "both", streams)

    return Case(make)


def _columns(rows: int, keys: Ints, seconds: int = 2) -> dict[str, Ints]:
    return {"at": _times(rows, seconds), "k": keys, "x": np.arange(rows) % 5003}


def _joined(condition: Mapping[str, Any], equal: bool) -> Case:
    def build(rows: int) -> tuple[Nodes, dict[str, Ints], dict[str, Ints]]:
        join = {"op": "join", "left": "l", "right": "r", "on": [["k", "k"]]} | dict(condition)
        join["compute"] = {"x": "l.x", "y": "r.x"}
        if equal:  # rows with one key, of which each finds all of the others
            few = np.zeros(100, dtype=np.int64)
            return join, _columns(20_000, np.zeros(20_000, dtype=np.int64)), _columns(100, few)
        keys = _scattered(np.arange(rows))
        return join, _columns(rows, keys), _columns(rows, np.roll(keys, rows // 8))

    return _pair(build)


def _except(rows: int) -> tuple[Nodes, dict[str, Ints], dict[str, Ints]]:
    node = {"op": "except", "left": "l", "right": "r", "window": {"kind": "tumbling", "size": "1s"}}
    keys = _scattered(np.arange(rows))
    other = _columns(rows, keys)
    other["x"] = other["x"] + np.arange(rows) % 2
    return node, _columns(rows, keys), other


def _union(rows: int) -> tuple[Nodes, dict[str, Ints], dict[str, Ints]]:
    node = {"op": "union", "inputs": ["l", "r"], "order": "time"}
    first, second = _columns(rows, np.arange(rows)), _columns(rows, np.arange(rows))
    second["at"] = second["at"] + 3 * _SECOND // 2
    return node, first, second


def _table(path: Path, rows: int) -> Inputs:
    keys = _scattered(np.arange(rows))
    stream = _stream(path, "s", "at timestamp, k int, x int", _columns(rows, keys))
    clock = ManualClock(0)
    table = ScriptedTable(path / "tables", "t", "k int, name int", clock)
    table.put(*zip(keys.tolist(), range(rows), strict=True))
    join = {
        "op": "join",
        "left": "in",
        "right": "t",
        "on": [["k", "k"]],
        "compute": {"x": "l.x", "name": "r.name"},
    }
    nodes = {"in": {"op": "source", "stream": "s"}, "t": {"op": "table", "table": "t"}, "both": join}
    return Inputs(nodes, "both", [stream], [table])


def _distinct(path: Path, rows: int) -> Inputs:
    columns = _columns(rows, _scattered(np.arange(rows)))
    stream = _stream(path, "s", "at timestamp, k int, x int", columns)
    nodes = {
        "in": {"op": "source", "stream": "s"},
        "p": {"op": "project", "input": "in", "compute": {"k": "k", "x": "x"}},
        "d": {"op": "distinct", "input": "p", "window": {"kind": "tumbling", "size": "1s"}},
    }
    return Inputs(nodes, "d", [stream])


_TUMBLING = {"kind": "tumbling", "size": "1s"}
_HOPPING = {"kind": "hopping", "size": "1s", "hop": "250ms"}
_SESSIONS = {"kind": "session", "gap": "500ms"}
_HOLISTIC = {"m": "median(x)", "q": "quantile(x, 0.9)"}

CASES: dict[str, Case] = {
    "tumbling": _grouped(_TUMBLING),
    "tumbling, disordered": _grouped(_TUMBLING, disordered=True),
    "tumbling, dense": _grouped(_TUMBLING, keys=lambda rows: np.arange(rows)),
    "tumbling, two keys": _grouped(_TUMBLING, by=("k", "g")),
    "tumbling, texts": _grouped(_TUMBLING, fields="at timestamp, k string, g int, x int"),
    "hopping": _grouped(_HOPPING),
    "hopping, same keys": _grouped(_HOPPING, keys=lambda rows: _scattered(np.arange(rows) % (rows // 8))),
    "quantiles": _grouped(_TUMBLING, compute=_HOLISTIC, keys=lambda rows: np.arange(rows) % (rows // 6)),
    "quantiles, one group": _grouped(_TUMBLING, compute=_HOLISTIC, by=()),
    "quantiles, hopping": _grouped(
        _HOPPING, compute=_HOLISTIC, keys=lambda rows: np.arange(rows) % (rows // 20)
    ),
    "count distinct": _grouped(
        _TUMBLING, compute={"d": "count(distinct x)"}, keys=lambda rows: np.arange(rows) % (rows // 6)
    ),
    "count distinct, one group": _grouped(_TUMBLING, compute={"d": "count(distinct k)"}, by=()),
    "count distinct, hopping": _grouped(
        _HOPPING, compute={"d": "count(distinct x)"}, keys=lambda rows: np.arange(rows) % (rows // 20)
    ),
    "sessions": _grouped(_SESSIONS, keys=lambda rows: _scattered(np.arange(rows) // 2), seconds=4),
    "rows": _grouped({"kind": "hopping", "size": 200_000, "hop": 100_000}),
    "interval join": _joined({"within": "1s"}, equal=False),
    "interval join, equal keys": _joined({"within": "10s"}, equal=True),
    "window join": _joined({"window": _TUMBLING}, equal=False),
    "window join, equal keys": _joined({"window": {"kind": "tumbling", "size": "10s"}}, equal=True),
    "window join, hopping": _joined({"window": _HOPPING}, equal=False),
    "except": _pair(_except),
    "distinct": Case(_distinct),
    "union by time": _pair(_union),
    "table join": Case(_table),
}
