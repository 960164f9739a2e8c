"""The view of streams in a browser: newest rows, readers and their lag, files that are dropped onto one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect
from tests.support.servers.running_server import eventually

from mavstream import Client, stream

BIG_ROWS = 60_000


@pytest.fixture(scope="module")
def meters(client: Client) -> Iterator[str]:
    """A stream with some rows, and a query that reads it."""
    fields = [{"name": "meter", "type": "int"}, {"name": "watts", "type": "float", "nullable": True}]
    client.create_stream(name="meters", fields=fields)
    client.append("meters", [{"meter": n, "watts": n / 2} for n in range(30)])
    query = client.submit(stream("meters").where("watts > 10"), name="drain", class_="comfort")
    yield "meters"
    query.delete()
    client.delete_stream("meters")


def opened(page: Page, base: str, name: str) -> Locator:
    page.goto(f"{base}/streams")
    page.locator(f"[data-key=stream-{name}] > summary").click()
    return page.locator(f"[data-key=stream-{name}]")


def test_an_open_stream_shows_its_newest_rows_first(
    page: Page, base: str, client: Client, meters: str
) -> None:
    card = opened(page, base, meters)
    rows = card.get_by_role("region", name="Newest rows of meters").locator("tbody tr")
    expect(rows).to_have_count(20)
    expect(rows.first).to_contain_text("29")
    client.append(meters, [{"meter": 777, "watts": None}])
    expect(rows.first).to_contain_text("777")
    expect(rows.first).to_contain_text("null")


def test_the_lag_of_each_reader_is_shown(page: Page, base: str, client: Client, meters: str) -> None:
    card = opened(page, base, meters)
    reader = card.get_by_role("row", name=re.compile("^drain"))
    expect(reader.get_by_role("cell").nth(2)).to_have_text("0")
    client.query("drain").pause()
    expect(reader).to_contain_text("paused")
    client.query("drain").resume()
    reader.get_by_role("link", name="drain").click()
    expect(page.get_by_role("heading", name="drain")).to_be_visible()


def test_a_large_file_is_appended_in_pieces(
    page: Page, base: str, client: Client, meters: str, tmp_path: Path
) -> None:
    file = tmp_path / "big.csv"
    file.write_text("meter,watts\n" + "".join(f"{n},{n}.125\n" for n in range(BIG_ROWS)))
    assert file.stat().st_size > 700_000
    before = client.stream_info(meters).position
    card = opened(page, base, meters)
    page.get_by_label("Rows for meters").set_input_files(file)
    expect(card.get_by_role("status")).to_contain_text("60 000 rows of big.csv were appended")
    assert client.stream_info(meters).position == before + BIG_ROWS
    expect(card.get_by_role("region", name="Newest rows of meters")).to_contain_text("59999")


def test_nothing_is_appended_of_a_file_with_bad_rows_and_they_are_named(
    page: Page, base: str, client: Client, meters: str, tmp_path: Path
) -> None:
    file = tmp_path / "bad.csv"
    file.write_text("meter,watts\n1,2\n1.5,2\n2,much\n")
    before = client.stream_info(meters).position
    card = opened(page, base, meters)
    page.get_by_label("Rows for meters").set_input_files(file)
    expect(card.get_by_role("status")).to_contain_text("nothing was appended")
    errors = card.locator(".bad-rows li")
    expect(errors).to_have_count(2)
    expect(errors.first).to_contain_text("row 2: field 'meter'")
    expect(errors.last).to_contain_text("row 3: field 'watts'")
    assert client.stream_info(meters).position == before


def test_a_file_above_the_limit_is_refused_before_it_is_sent(
    page: Page, base: str, meters: str, tmp_path: Path
) -> None:
    file = tmp_path / "huge.parquet"
    file.touch()
    os.truncate(file, (256 << 20) + 1)
    card = opened(page, base, meters)
    expect(card).to_contain_text("up to 256 MiB")
    page.get_by_label("Rows for meters").set_input_files(file)
    expect(page.get_by_text("huge.parquet is larger than 256 MiB")).to_be_visible()


def test_the_server_of_the_page_keeps_the_limit_too(
    page: Page, base: str, client: Client, meters: str
) -> None:
    page.goto(base)
    connection = HTTPConnection(base.removeprefix("http://"), timeout=30)
    connection.putrequest("POST", f"/streams/{meters}/files/huge.csv")
    connection.putheader("Content-Length", str((256 << 20) + 1))
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 413
    assert b"mavstream feed meters=huge.csv" in answer.read()
    connection.close()
    before = client.stream_info(meters).position
    assert httpx.post(f"{base}/streams/{meters}/files/a.csv", content=b"meter\n7\n").status_code == 202
    eventually(lambda: client.stream_info(meters).position == before + 1, "the row")
