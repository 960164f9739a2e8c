"""Random SQL through a real server over HTTP gives the rows that DuckDB gives for the same text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.support.differential.comparison import difference
from tests.support.differential.scripts import Row, StreamScript
from tests.support.scale import scaled
from tests.support.servers.running_server import RunningServer, eventually, running_server
from tests.support.sql.duckdb_answers import Tables, Unanswerable
from tests.support.sql.random_sql import SqlCase, random_sql_case

from mavstream_protocol.plans.inference import infer
from mavstream_protocol.schema import FieldType, Schema
from mavstream_protocol.sql import Catalog, parse_select
from mavstream_protocol.typed_plan import StreamShape

ARROW = "application/vnd.apache.arrow.stream"
CASES = scaled(12, 2000)
FIRST = 50_000
"""The first seed: other tests have others."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("data"), "--admission", "off") as running:
        yield running


def create(server: RunningServer, script: StreamScript) -> None:
    fields = [{"name": f.name, "type": f.type, "nullable": f.nullable} for f in script.fields]
    spec = {"name": script.name, "fields": fields, "event_time": script.event_time}
    spec["lateness"] = f"{script.lateness}us"
    server.http.post("/v1/streams", json=spec).raise_for_status()


def fill(server: RunningServer, script: StreamScript) -> None:
    names = [field.name for field in script.fields]
    rows = [dict(zip(names, row, strict=True)) for row in script.rows]
    path = f"/v1/streams/{script.name}"
    if rows:
        server.http.post(f"{path}/tuples", json=rows).raise_for_status()
    server.http.post(f"{path}/complete", json={}).raise_for_status()


def answer(server: RunningServer, case: SqlCase, schema: Schema) -> list[Row]:
    for script in case.scripts:
        create(server, script)
    made = server.http.post("/v1/queries", json={"name": "random", "sql": case.sql.ours})
    assert made.status_code == 201, f"{made.text}\n{case.sql.ours}"
    query = f"/v1/queries/{made.json()['id']}"
    for script in case.scripts:
        fill(server, script)
    eventually(lambda: server.http.get(query).json()["state"] == "finished", f"the end of seed {case.seed}")
    content = server.http.get(f"{query}/results?limit=10000", headers={"accept": ARROW}).content
    server.http.delete(query).raise_for_status()
    for script in case.scripts:
        server.http.delete(f"/v1/streams/{script.name}").raise_for_status()
    table = pa.ipc.open_stream(content).read_all()
    columns = [_values(table.column(field.name), field.type) for field in schema]
    return list(zip(*columns, strict=True))


def _values(column: Any, kind: FieldType) -> list[Any]:
    if kind is FieldType.TIMESTAMP:
        column = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def test_random_sql_through_the_service_agrees_with_duckdb(server: RunningServer) -> None:
    tables = Tables()
    answered = rows = 0
    for seed in range(FIRST, FIRST + CASES):
        case = random_sql_case(seed)
        streams = {s.name: StreamShape(Schema(s.fields), s.event_time) for s in case.scripts}
        schema = infer(parse_select(case.sql.ours, Catalog(streams)), streams).schema
        try:
            expected = tables.answer(case, schema)
        except Unanswerable:
            continue
        wrong = difference(expected, answer(server, case, schema))
        assert wrong == ([], []), f"seed {seed}\n{case.sql.ours}\n{case.sql.theirs}"
        answered += 1
        rows += len(expected)
    assert answered > 0.8 * CASES
    assert rows > CASES
