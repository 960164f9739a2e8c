"""One file for several streams: each row to the first condition that holds, the others counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.commands.in_process import command
from tests.support.reading_files import READINGS, ROWS
from tests.support.servers.running_server import RunningServer, running_server

from mavstream import Client
from mavstream_feeder import (
    Address,
    Branch,
    Feeder,
    FileSource,
    InvalidRate,
    InvalidSplit,
    Splitter,
    parse_rate,
)
from mavstream_feeder.input.arguments import InputArguments, read_feeds
from mavstream_feeder.input.splitting import parse_split
from mavstream_protocol import StreamSpec
from mavstream_protocol.tuples import decode_rows

COUNT = 1000
CSV = "n,celsius\n" + "".join(f"{n},{n % 40 if n % 100 else ''}\n" for n in range(COUNT))
FIELDS = [{"name": "n", "type": "int"}, {"name": "celsius", "type": "float", "nullable": True}]
# Every hundredth row has no temperature, so that no condition on it holds.
HOT = sum(n % 40 > 30 for n in range(COUNT) if n % 100)
COLD = sum(n % 40 < 5 for n in range(COUNT) if n % 100)


@pytest.fixture
def readings(tmp_path: Path) -> Path:
    path = tmp_path / "readings.csv"
    path.write_text(CSV)
    return path


def spec(name: str) -> StreamSpec:
    return StreamSpec.model_validate({"name": name, "fields": FIELDS})


@pytest.mark.parametrize(
    ("text", "file", "branch"),
    [
        ("hot=readings.csv where celsius > 30", "readings.csv", Branch("hot", "celsius > 30")),
        (" hot = a b/readings.csv  WHERE\nx = 1 ", "a b/readings.csv", Branch("hot", "x = 1")),
        ("rest=readings.csv", "readings.csv", Branch("rest")),
    ],
)
def test_splits_are_read(text: str, file: str, branch: Branch) -> None:
    assert parse_split(text) == (file, branch)


@pytest.mark.parametrize("text", ["", "readings.csv where x > 1", "=readings.csv", "hot="])
def test_invalid_splits_are_refused(text: str) -> None:
    with pytest.raises(InvalidSplit, match="expected a split such as"):
        parse_split(text)


def parts(*branches: Branch) -> tuple[dict[str, list[int]], int]:
    splitter = Splitter(branches, READINGS.schema())
    found = splitter.parts(decode_rows(READINGS.schema(), ROWS))
    for part in found:
        assert part.rows.column("home").to_pylist() == (part.indexes + 1).tolist()
    return {part.stream: part.rows.column("home").to_pylist() for part in found}, splitter.unmatched


def test_each_row_goes_to_the_first_condition_that_holds() -> None:
    assert parts(Branch("warm", "celsius > 5"), Branch("lit", '"on"'), Branch("rest")) == (
        {"warm": [1, 3], "rest": [2]},
        0,
    )


def test_rows_that_match_no_condition_are_counted() -> None:
    # The second room is null, so neither condition is true for it.
    assert parts(Branch("hall", "room = 'hall'"), Branch("other", "room <> 'hall'")) == (
        {"hall": [1], "other": [3]},
        1,
    )
    assert parts(Branch("none", "celsius > 1000")) == ({}, 3)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("warmth > 3", "no field `warmth`"),
        ("celsius >", "stream 'hot'"),
        ("celsius + 1", "comparison such as"),
    ],
)
def test_the_error_for_an_invalid_condition_names_its_stream(where: str, words: str) -> None:
    with pytest.raises(InvalidSplit, match=words):
        Splitter([Branch("hot", where)], READINGS.schema())


def test_a_split_file_has_one_rate(readings: Path) -> None:
    splits = (f"hot={readings} where celsius > 30", f"rest={readings}")
    (feed,) = read_feeds(InputArguments(splits=splits), ["readings=500"])
    assert feed.streams == ("hot", "rest")
    assert str(feed.rate) == "500"
    with pytest.raises(InvalidSplit, match="rows arrive at one rate, give --rate readings="):
        read_feeds(InputArguments(splits=splits), ["hot=500"])
    with pytest.raises(InvalidRate, match="which is not fed: fed are readings"):
        read_feeds(InputArguments(splits=splits), ["cold=500"])
    with pytest.raises(InvalidSplit, match="stream 'hot' gets rows of 'readings' and 'other'"):
        read_feeds(InputArguments(splits=(*splits, f"hot={readings.parent / 'other.csv'}")))


def test_a_split_file_is_not_fed_as_a_whole() -> None:
    feeds = read_feeds(InputArguments(sample=True, splits=["hot=temperature where celsius > 30"]))
    assert {feed.name: feed.streams for feed in feeds}["temperature"] == ("hot",)
    assert len(feeds) == 5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.mark.parametrize("rate", ["max", "5000"])
def test_rows_of_a_split_file_arrive_in_their_streams_and_none_is_dropped_silently(
    server: RunningServer, readings: Path, rate: str
) -> None:
    hot, cold = spec(f"hot_{rate}"), spec(f"cold_{rate}")
    splitter = Splitter([Branch(hot.name, "celsius > 30"), Branch(cold.name, "celsius < 5")], hot.schema())
    with Client(server.url) as client:
        client.create_stream(hot)
        client.create_stream(cold)
        feeder = Feeder(Address(server.url))
        feeder.add_split("readings", FileSource(readings, hot), parse_rate(rate), splitter)
        report = asyncio.run(feeder.run())
        assert report.streams[hot.name].acked == client.stream_info(hot.name).position == HOT
        assert report.streams[cold.name].acked == client.stream_info(cold.name).position == COLD
    assert report.unmatched == {str(readings): COUNT - HOT - COLD}
    assert report.streams[hot.name].row == COUNT


def test_the_command_splits_and_reports_unmatched_rows(server: RunningServer, readings: Path) -> None:
    words = ("--url", server.url, "feed", "--create", "--split", f"warm={readings} where celsius > 30")
    done = command(*words)
    assert done.returncode == 0, done.stderr
    assert f"{COUNT - HOT} rows of {readings} match no split condition" in " ".join(done.stdout.split())
    again = command(*words, "--split", f"other={readings}", "-o", "json")
    assert again.returncode == 0, again.stderr
    report = json.loads(again.stdout)
    assert report["unmatched"] == {str(readings): 0}
    assert {name: each["acked"] for name, each in report["streams"].items()} == {
        "warm": HOT,
        "other": COUNT - HOT,
    }


def test_streams_of_one_file_have_the_same_fields(server: RunningServer, readings: Path) -> None:
    with Client(server.url) as client:
        client.create_stream(name="narrow", fields=FIELDS[:1])
        client.create_stream(name="wide", fields=FIELDS)
    done = command(
        "--url",
        server.url,
        "feed",
        "--split",
        f"wide={readings} where n < 5",
        "--split",
        f"narrow={readings}",
    )
    assert done.returncode == 2
    assert "whose fields or event times differ" in " ".join(done.stderr.replace("│", " ").split())
