"""SQL with the SDK: statements and their results, tables from files, queries, and errors with a caret."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.servers.running_server import RunningServer, running_server

from mavstream import AsyncClient, Client, InvalidObject, SqlError, stream
from mavstream._sql.pointing import pointed


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("data")) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[Client]:
    with Client(server.url) as made:
        made.sql("CREATE STREAM readings (room string, temperature float)")
        yield made


def refused(client: Client, sql: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        client.sql(sql)
    return caught.value


def test_results_are_models_and_text(client: Client) -> None:
    results = client.sql("CREATE STREAM doors (door string, open bool); DESCRIBE doors; SELECT * FROM doors")
    assert [one.kind for one in results] == ["created", "rows", "selected"]
    assert results.rows[0] == {"column": "door", "type": "string", "nullable": False, "event_time": False}
    assert repr(results).splitlines() == [
        "created stream doors",
        "column  type    nullable  event_time",
        "door    string  False     False",
        "open    bool    False     False",
        "checked, not registered: door string, open bool",
    ]
    done = client.sql("INSERT INTO doors VALUES ('front', TRUE)")
    assert (len(done), repr(done)) == (1, "inserted 1 row into doors")


def test_queries_are_submitted_validated_and_shown_as_sql(client: Client) -> None:
    sql = "SELECT room FROM readings WHERE temperature > 30"
    assert client.validate(sql=sql).valid
    query = client.submit(sql=sql, name="hot", from_="earliest")
    assert query.info().spec.from_ == "earliest"
    assert query.sql() == query.sql(running=True) == "SELECT room\nFROM readings\nWHERE temperature > 30"
    flow = client.submit(stream("readings").where("temperature > 40"), name="hotter")
    assert flow.sql().endswith("WHERE temperature > 40")
    for give in ({}, {"query": stream("readings"), "sql": sql}):
        with pytest.raises(InvalidObject, match="expected a query or sql=, got"):
            client.submit(**give)


def test_errors_show_the_line_with_a_caret(client: Client) -> None:
    error = refused(client, "SHOW STREAMS;\nSELECT *\n  FROM readngs\n  WHERE temperature > 30")
    assert (error.line, error.column, error.number, error.code) == (3, 8, 2, "invalid_sql")
    assert str(error).splitlines() == [
        "there is no stream, table or query `readngs`; did you mean `readings`?",
        "line 3:   FROM readngs",
        "               ^",
        "the statement before it took effect",
    ]
    assert [one.kind for one in error.results] == ["rows"]
    with pytest.raises(SqlError) as caught:
        client.submit(sql='SELECT * FROM readings WHERE room = "kitchen"', name="q")
    assert "use single quotes for text: 'kitchen'" in str(caught.value)
    assert str(caught.value).splitlines()[2].index("^") == len("line 1: ") + 36


def test_other_errors_name_the_statement(client: Client) -> None:
    error = refused(client, "CREATE STREAM twice (n int);\n CREATE STREAM twice (n int)")
    assert (error.problem.status, error.code, error.line, error.column) == (409, "stream_exists", 2, 2)


def test_tables_are_made_from_files_of_the_client(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "rooms.csv"
    file.write_text("room,floor\nattic,3\n")
    script = (
        "CREATE STREAM with_rooms (room string);\n"
        f"CREATE TABLE rooms AS FROM '{file}';\n"
        "SELECT room, floor FROM with_rooms JOIN rooms USING (room);\n"
        f"create or replace table rooms AS FROM '{file}'; SHOW TABLES"
    )
    results = client.sql(script)
    assert [one.kind for one in results] == ["created", "created", "selected", "created", "rows"]
    assert repr(results).splitlines()[1:4:2] == ["created table rooms", "replaced table rooms"]
    (table,) = results.rows
    assert (table["table"], table["rows"]) == ("rooms", 1)
    exists = refused(client, f"SHOW STREAMS; SHOW TABLES;\nCREATE TABLE rooms AS FROM '{file}'")
    assert (exists.code, exists.number, exists.line) == ("table_exists", 3, 2)
    behind = refused(
        client, f"CREATE TABLE more (room string, floor float) AS FROM '{file}';\n\n  SELECT x FROM rooms"
    )
    assert (behind.number, behind.line, behind.column, len(behind.results)) == (2, 3, 17, 1)
    assert [field.type for field in client.table_info("more").fields] == ["string", "float"]
    missing = refused(client, "CREATE TABLE none AS FROM 'none.csv'")
    assert "'none.csv' cannot be read" in str(missing)
    wrong = refused(client, "SHOW STREAMS; CREATE TABLE none AS 'none.csv'")
    assert (wrong.number, wrong.column) == (2, 36)


def test_the_async_client_does_the_same(server: RunningServer) -> None:
    async def main() -> list[str]:
        async with AsyncClient(server.url) as client:
            await client.sql("CREATE STREAM asked (n int)")
            query = await client.submit(sql="SELECT n FROM asked", name="asking")
            return [row["column"] for row in (await client.sql("DESCRIBE asked")).rows] + [await query.sql()]

    assert asyncio.run(main()) == ["n", "SELECT n\nFROM asked"]


def test_long_lines_are_shown_around_the_column() -> None:
    line = "SELECT " + ", ".join(f"c{number}" for number in range(100)) + " FROM readings"
    shown, caret = pointed(line, 1, line.index("c60") + 1).split("\n")
    assert shown[caret.index("^") :].startswith("c60")
    assert len(shown) < 130


def test_the_sdk_loads_sql_when_it_is_used() -> None:
    heavy = ("prompt_toolkit", "mavstream_protocol.sql")
    code = f"import mavstream, sys; print([name for name in sys.modules if name.startswith({heavy})])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
