"""Stored tables from programs and from the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from tests.support.commands.in_process import Outcome
from tests.support.commands.in_process import command as run_here
from tests.support.servers.tables import as_arrow, as_parquet, rooms_table

from mavstream import (
    AsyncClient,
    Client,
    Conflict,
    Invalid,
    InvalidObject,
    NotFound,
    join,
    stream,
    table,
)
from mavstream.testing import start_server

ROWS = [{"room": "attic", "threshold": 31.5}, {"room": "kitchen", "threshold": None}]
COLUMNS = {"room": ["attic", "kitchen"], "threshold": [31.5, None]}
FIELDS = "room:string,threshold:float?"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with start_server() as found:
        with Client(found) as client:
            fields = [{"name": "n", "type": "int"}, {"name": "room", "type": "string"}]
            client.create_stream(name="readings", fields=fields)
        yield found


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as made:
        yield made


def test_a_table_is_put_from_any_supported_type(client: Client, tmp_path: Path) -> None:
    files = {
        "rooms.csv": b"room,threshold\nattic,31.5\nkitchen,\n",
        "rooms.json": json.dumps(ROWS).encode(),
        "rooms.jsonl": b"\n".join(json.dumps(row).encode() for row in ROWS),
        "rooms.parquet": as_parquet(rooms_table()),
        "rooms.arrow": as_arrow(rooms_table(), file=True),
        "rooms.arrows": as_arrow(rooms_table()),
    }
    given: list[Any] = [
        ROWS,
        iter(ROWS),
        COLUMNS,
        rooms_table(),
        rooms_table().to_batches()[0],
        pd.DataFrame(COLUMNS),
    ]
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        given += [tmp_path / name, str(tmp_path / name)]
    made = client.put_table("whatever", ROWS, FIELDS)
    assert (made.version, made.rows, [one.type for one in made.fields]) == (1, 2, ["string", "float"])
    for data in given:
        # The same rows are the same version, so each of these has the rows of the first.
        assert client.put_table("whatever", data) == made, data
    assert client.put_table("whatever", [{"room": "hall"}]).version == 2


def test_both_clients_put_describe_and_remove_tables(url: str) -> None:
    fields = [{"name": "room", "type": "string"}, {"name": "n", "type": "int", "nullable": True}]

    async def awaited() -> list[Any]:
        async with AsyncClient(url) as client:
            made = await client.put_table("awaited", [{"room": "a", "n": 1}], fields)
            shown = await client.table_info("awaited")
            listed = [one.name for one in await client.tables()]
            await client.delete_table("awaited")
            with pytest.raises(NotFound, match="there is no table 'awaited'"):
                await client.table_info("awaited")
            return [made.fields, shown.kept[0].rows, shown.used_by, "awaited" in listed]

    with Client(url) as client:
        made = client.put_table("blocking", [{"room": "a", "n": 1}], fields)
        shown = client.table_info("blocking")
        listed = [one.name for one in client.tables()]
        client.delete_table("blocking")
        with pytest.raises(NotFound, match="there is no table 'blocking'"):
            client.table_info("blocking")
    assert [made.fields, shown.kept[0].rows, shown.used_by, "blocking" in listed] == asyncio.run(awaited())


def test_errors_of_a_table_are_explained(client: Client, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match='expects a float, got "hot"') as caught:
        client.put_table("wrong", {"room": ["a"], "threshold": ["hot"]}, FIELDS)
    assert caught.value.problem.errors[0].pointer == "rows/0/threshold"
    with pytest.raises(InvalidObject, match=r"expected a file that ends in \.csv"):
        client.put_table("wrong", tmp_path / "rooms.xls")
    with pytest.raises(InvalidObject, match="No such file"):
        client.put_table("wrong", tmp_path / "rooms.csv")
    with pytest.raises(InvalidObject, match="'room:text' is not NAME:TYPE"):
        client.put_table("wrong", ROWS, "room:text")
    with pytest.raises(InvalidObject, match="both named"):
        client.put_table("wrong", ROWS, [{"name": "a", "type": "int"}, {"name": "A", "type": "int"}])
    with pytest.raises(InvalidObject, match="rows/0/room: expected text, a number, a list or an object"):
        client.put_table("wrong", [{"room": object()}])


def test_a_flow_joins_a_table(client: Client) -> None:
    client.put_table("rooms", ROWS, FIELDS)
    readings, rooms = stream("readings"), table("rooms")
    flow = readings.join(rooms, on="room", how="left").where("n > 1")
    plan = flow.build()
    assert list(plan.nodes) == ["readings", "rooms", "join", "select"]
    assert join(readings, rooms, ["room"], how="left").where("n > 1").build() == plan
    assert readings.join(rooms.named("known"), on="room").build().nodes["known"].op == "table"
    assert client.validate(flow).valid
    query = client.submit(flow)
    client.append(
        "readings", [{"n": 1, "room": "attic"}, {"n": 2, "room": "attic"}, {"n": 3, "room": "hall"}]
    )
    found = query.results(timeout=30)
    assert [next(found), next(found)] == [
        {"n": 2, "room": "attic", "threshold": 31.5},
        {"n": 3, "room": "hall", "threshold": None},
    ]
    found.close()
    with pytest.raises(Conflict, match=f"joined by '{query.id}'"):
        client.delete_table("rooms")
    query.delete()
    client.delete_table("rooms")


def command(url: str, *args: str) -> Outcome:
    return run_here(*args, MAVSTREAM_URL=url)


def test_the_command_puts_lists_shows_and_deletes(url: str, tmp_path: Path) -> None:
    file = tmp_path / "homes.csv"
    file.write_text("home,floors\nh1,2\nh2,\n")
    put = command(url, "table", "put", "homes", str(file), "--field", "home:string", "--field", "floors:int?")
    assert (put.returncode, put.stderr) == (0, "")
    assert "2 rows are version 1 of homes" in put.stdout
    file.write_text("home,floors\nh1,x\n")
    bad = command(url, "table", "put", "homes", str(file))
    assert bad.returncode == 1
    assert "rows/0/floors (type_mismatch): field 'floors' expects an int, got \"x\"" in bad.stderr
    assert command(url, "table", "put", "homes", str(tmp_path / "none.csv")).returncode == 2
    file.write_text("home,floors\nh1,3\n")
    again = json.loads(command(url, "table", "put", "homes", str(file), "-o", "json").stdout)
    assert (again["version"], again["rows"], again["versions"]) == (2, 1, 2)
    listed = json.loads(command(url, "table", "list", "-o", "json").stdout)
    assert ("homes", 2) in [(one["name"], one["version"]) for one in listed]
    assert "home string, floors int?" in command(url, "table", "list").stdout
    shown = json.loads(command(url, "table", "show", "homes", "-o", "json").stdout)
    assert [one["version"] for one in shown["kept"]][-1] == 2
    assert "homes" in command(url, "table", "show", "homes").stdout
    deleted = command(url, "table", "delete", "homes", "-o", "json")
    assert json.loads(deleted.stdout) == {"deleted": "homes"}
    missing = command(url, "table", "show", "homes")
    assert (missing.returncode, "there is no table 'homes'" in missing.stderr) == (1, True)


def test_timestamps_and_numbers_of_programs_are_stored_unchanged(client: Client) -> None:
    batch = pa.table(
        {
            "at": pa.array([1, None], pa.timestamp("us", "UTC")),
            "small": pa.array([1, 2], pa.int8()),
            "kind": pa.array(["a", "b"]).dictionary_encode(),
        }
    )
    info = client.put_table("typed", batch)
    assert [(one.name, one.type) for one in info.fields] == [
        ("at", "timestamp"),
        ("small", "int"),
        ("kind", "string"),
    ]
