"""`mavstream data check`: which rows of a run differ from the expected ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.support.commands.in_process import Outcome
from tests.support.commands.in_process import command as run_here
from tests.support.servers.running_server import eventually

from mavstream import Client
from mavstream.testing import start_server
from mavstream_protocol import FieldSpec
from mavstream_protocol.manifest import Manifest, StreamData
from mavstream_protocol.schema import FieldType
from mavstream_spark.expected.comparison import compared

HOUR = 3_600_000_000
FIELDS = (
    FieldSpec(name="at", type=FieldType.TIMESTAMP),
    FieldSpec(name="room", type=FieldType.STRING, nullable=True),
    FieldSpec(name="celsius", type=FieldType.FLOAT),
)
ROWS: list[tuple[int, str | None, float]] = [(0, "attic", 50.5), (HOUR, None, 46.25), (HOUR, "hall", 47.0)]


def table(rows: list[tuple[int, str | None, float]]) -> pa.Table:
    at, room, celsius = zip(*rows, strict=True) if rows else ((), (), ())
    columns = {"at": pa.array(at, pa.timestamp("us", "UTC")), "room": pa.array(room, pa.string())}
    return pa.table({**columns, "celsius": pa.array(celsius, pa.float64())})


def difference(expected: list[Any], found: list[Any]) -> tuple[list[Any], list[Any]]:
    comparison = compared("hot", FIELDS, table(expected), table(found))
    assert comparison.same == (not comparison.missing and not comparison.unexpected)
    return list(comparison.missing), list(comparison.unexpected)


def answers(folder: Path, rows: list[tuple[int, str | None, float]]) -> Path:
    """Write expected answers as `mavstream data expected` does."""
    (folder / "hot").mkdir(parents=True)
    parquet.write_table(table(rows), folder / "hot" / "part-0.parquet")
    data = StreamData(
        schema=FIELDS, event_time=None, rows=len(rows), time_range=None, rate=None, checksum="0", files=()
    )
    manifest = Manifest(kind="answers", options={}, begin=None, end=None, streams={"hot": data})
    (folder / "manifest.json").write_text(manifest.text())
    return folder


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server with a query `hot` that has finished."""
    with start_server() as found, Client(found) as client:
        client.create_stream("readings", fields=FIELDS, event_time="at")
        query = client.submit(sql="SELECT * FROM readings WHERE celsius > 45", name="hot")
        rows = [{"at": at, "room": room, "celsius": celsius} for at, room, celsius in ROWS]
        client.append("readings", [*rows, {"at": HOUR, "room": "hall", "celsius": 20.0}])
        client.complete("readings")
        eventually(lambda: query.info().state == "finished", "the end of the query")
        yield found


def check(url: str, *words: object) -> Outcome:
    return run_here("data", "check", *map(str, words), MAVSTREAM_URL=url)


def test_equal_multisets_have_no_difference_in_any_order() -> None:
    assert difference(ROWS, ROWS[::-1]) == ([], [])
    assert difference([], []) == ([], [])


def test_a_row_counts_as_often_as_it_is_there() -> None:
    assert difference([ROWS[0]] * 3, [ROWS[0]]) == ([ROWS[0]] * 2, [])
    assert difference([ROWS[0]], [ROWS[0]] * 2) == ([], [ROWS[0]])


def test_floats_are_equal_in_all_but_their_last_digits() -> None:
    near = [(at, room, celsius * (1 + 1e-12)) for at, room, celsius in ROWS]
    assert difference(ROWS, near) == ([], [])
    far = [*near[:2], (HOUR, "hall", 47.0001)]
    assert difference(ROWS, far) == ([ROWS[2]], [far[2]])
    assert difference([(0, "a", 1.0), (0, "a", 1.0)], [(0, "a", 1 + 1e-12), (0, "a", 2.0)]) == (
        [(0, "a", 1.0)],
        [(0, "a", 2.0)],
    )


def test_null_is_no_value() -> None:
    assert difference([(0, None, 1.0)], [(0, "", 1.0)]) == ([(0, None, 1.0)], [(0, "", 1.0)])


def test_a_run_with_the_expected_results_succeeds(url: str, tmp_path: Path) -> None:
    folder = answers(tmp_path / "answers", ROWS)
    done = check(url, folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "hot" in done.stdout
    (found,) = json.loads(check(url, folder, "--json").stdout)
    assert (found["same"], found["expected"], found["found"]) == (True, 3, 3)


def test_rows_that_differ_are_shown_with_counts(url: str, tmp_path: Path) -> None:
    folder = answers(tmp_path / "answers", [*ROWS[:2], (HOUR, "cellar", 48.0)])
    done = check(url, folder)
    assert done.returncode == 1
    assert '  - {"at": "1970-01-01T01:00:00.000000Z", "room": "cellar", "celsius": 48.0}' in done.stdout
    assert '  + {"at": "1970-01-01T01:00:00.000000Z", "room": "hall", "celsius": 47.0}' in done.stdout
    assert "and 1 more" in check(url, folder, "--rows", "1").stdout
    done = check(url, folder, "--json")
    (found,) = json.loads(done.stdout)
    assert (done.returncode, found["missing"], found["unexpected"]) == (1, 1, 1)
    assert found["missing_rows"][0]["room"] == "cellar"


def test_a_query_that_has_not_finished_is_said(url: str, tmp_path: Path) -> None:
    folder = answers(tmp_path / "answers", [])
    with Client(url) as client:
        client.create_stream("open", fields=FIELDS)
        client.submit(sql="SELECT * FROM open", name="waiting")
    done = check(url, folder, "--query", "hot=waiting")
    assert done.returncode == 0
    assert "query 'waiting' is running, so results may follow" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--query", "cold"], "the dataset has no stream 'cold': it has hot"),
        (["--query", "hot=cold"], "there is no query 'cold'"),
        (["--query", "hot=other"], "query 'other' has the columns room, and the expected answers have at,"),
    ],
)
def test_answers_and_queries_that_do_not_fit_are_refused(
    url: str, tmp_path: Path, words: list[str], said: str
) -> None:
    with Client(url) as client:
        if "hot=other" in words:
            client.submit(sql="SELECT room FROM readings", name="other")
    done = check(url, answers(tmp_path / "answers", ROWS), *words)
    assert done.returncode == 1
    assert said in done.stderr


def test_a_dataset_without_answers_and_a_server_without_the_query_are_refused(tmp_path: Path) -> None:
    folder = answers(tmp_path / "answers", ROWS)
    with start_server() as empty:
        assert "the server has no query 'hot'" in check(empty, folder).stderr
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"answers"', '"converted"'))
    assert "is a dataset of the kind 'converted'" in check("http://127.0.0.1:1", folder).stderr
