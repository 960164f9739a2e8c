"""Answers of a plan from the engine, which reads logs, and from Spark, which reads files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

from mavstream_protocol import Plan
from mavstream_protocol.manifest import Manifest
from mavstream_server.engine.states import QueryState
from mavstream_server.testing import ManualClock, ScriptedStream, run_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = tuple[Any, ...]
_TOLERANCE = 1e-9


def rows_of(table: pa.Table) -> list[Row]:
    """Return rows as tuples, with timestamps as microseconds."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        columns.append(column.to_pylist())
    return list(zip(*columns, strict=True)) if columns else []


def spark_rows(frame: DataFrame) -> list[Row]:
    return rows_of(frame.toArrow())


def logged_streams(folder: Path, logs: Path) -> list[ScriptedStream]:
    """Write the streams of a dataset to logs, in the order of their files."""
    manifest = Manifest.load(folder)
    clock = ManualClock()
    streams = []
    for name, data in manifest.streams.items():
        fields = ", ".join(f"{f.name} {f.type}{' null' if f.nullable else ''}" for f in data.fields)
        stream = ScriptedStream(logs, name, fields, clock, event_time=data.event_time)
        for path in data.paths(folder):
            table = pyarrow.parquet.read_table(path, partitioning=None)
            stream.rows(*rows_of(table.select([field.name for field in data.fields])), frame=2000)
        stream.complete()
        streams.append(stream)
    return streams


def engine_rows(streams: Sequence[ScriptedStream], plan: Plan) -> list[Row]:
    """Run a plan in the engine until it has finished; returns its answers."""
    document = plan.model_dump(mode="json", exclude_none=True)
    used = {node["stream"] for node in document["nodes"].values() if node["op"] == "source"}
    run = run_plan(document["nodes"], document["root"], [stream for stream in streams if stream.name in used])
    run.engine.run()
    assert run.query.state is QueryState.FINISHED, run.query.reason
    return run.answers()


def assert_same_rows(expected: Sequence[Row], got: Sequence[Row]) -> None:
    """Compare multisets of rows, floats within a tolerance."""
    assert len(expected) == len(got), f"expected {len(expected)} rows, got {len(got)}"
    for ours, theirs in zip(sorted(expected, key=_key), sorted(got, key=_key), strict=True):
        assert _near_rows(ours, theirs), f"expected {ours}\ngot      {theirs}"


def _key(row: Row) -> tuple[Any, ...]:
    """Sort by exact values first, then by floats, which differ in their last digits at most."""
    exact = tuple((value is None, str(value)) for value in row if not isinstance(value, float))
    return exact, tuple(float(f"{value:.6g}") for value in row if isinstance(value, float))


def _near_rows(left: Row, right: Row) -> bool:
    return len(left) == len(right) and all(_near(a, b) for a, b in zip(left, right, strict=True))


def _near(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return type(left) is type(right) and bool(left == right)


def plan_of(root: str, **nodes: Mapping[str, Any]) -> Plan:
    return Plan.parse({"root": root, "nodes": dict(nodes)})
