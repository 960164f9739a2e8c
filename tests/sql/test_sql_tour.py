"""The tour of the SQL page through a real server: from nothing to an alarm with a target, and its answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.documents import ROOT, blocks
from tests.support.servers.running_server import running_server

from mavstream import Client, SqlError
from mavstream_protocol.sql import split_statements

PAGE = ROOT / "docs" / "sql.md"
HOT = "INSERT INTO readings (at, home, room, temperature) VALUES ('2026-01-01T00:00:{}Z', 1, 'attic', 40)"


def test_the_statements_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rooms.csv").write_text("room,floor\nattic,3\nkitchen,0\n")
    monkeypatch.chdir(tmp_path)
    kinds, refused = [], []
    with running_server(tmp_path / "data") as server, Client(server.url) as client:
        for block in blocks(PAGE, "sql"):
            for statement in split_statements(block):
                try:
                    (result,) = client.sql(statement)
                except SqlError as error:
                    refused.append((error.code, statement.split("AS")[0].strip()))
                    continue
                kinds.append(result.kind)
                if statement.strip().startswith("CREATE QUERY hot_rooms"):
                    check_alarm(client)
    assert refused == []
    assert kinds[0] == "created"
    assert set(kinds) == {"created", "inserted", "selected", "changed", "rows", "explained", "dropped"}
    assert len(kinds) > 30


def check_alarm(client: Client) -> None:
    """Feed the stream of the tour; the alarm has its class, its target, and the right answer."""
    query = client.query("hot_rooms")
    assert query.info().spec.class_ == "alarms"
    assert query.info().spec.qos.latency is not None
    # The first window may have begun before the query; the last row closes the second one.
    for second in ("01", "02", "10"):
        client.sql(HOT.format(second))
    with query.results(timeout=30) as results:
        row = next(results)
    assert (row["room"], row["most"]) == ("attic", 40.0)
