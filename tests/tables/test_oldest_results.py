"""The lowest arrival times of the rows that led to the results from an offset on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mavstream_server.columns.batch import Batch, Mark
from mavstream_server.columns.column import Column
from mavstream_server.log import LogDescription, LogOptions, LogWriter, Retention
from mavstream_server.log.format.provenance import encode_provenance
from mavstream_server.tables.oldest_results import OldestResults
from mavstream_server.testing.streams import parse_fields

SCHEMA = parse_fields("n int")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogWriter]:
    with LogWriter(tmp_path / "q", LogDescription(SCHEMA), LogOptions(segment_bytes=1 << 12)) as writer:
        yield writer


def append(log: LogWriter, *arrivals: int, mark: Mark | None = None) -> None:
    given = np.array(arrivals, dtype=np.int64)
    columns = {"n": Column(given, None)}
    rows = Batch(columns, len(given), given, mark=mark)
    log.append(columns, rows.size, 10**18, provenance=encode_provenance(rows, (0,)))


def oldest(results: OldestResults, offset: int) -> int | None:
    return asyncio.run(results.arrival("q", offset))


def test_arrivals_are_in_any_order_and_found_as_the_log_grows(log: LogWriter, tmp_path: Path) -> None:
    results = OldestResults(tmp_path)
    append(log, 50, 40)
    append(log, 70)
    assert oldest(results, 0) == 40
    append(log, 30, 90)
    assert [oldest(results, offset) for offset in (0, 2, 5)] == [30, 30, None]
    append(log, 80, mark=Mark(1, 60))
    assert oldest(results, 5) == 60
    assert oldest(results, 0) == 30  # a query that begins with the earliest


def test_results_that_were_read_hold_no_more_than_the_block_they_are_in(
    log: LogWriter, tmp_path: Path
) -> None:
    results = OldestResults(tmp_path)
    for arrival in range(1, 31):
        append(log, *[arrival] * 1000)
    found = [oldest(results, offset) for offset in range(0, 30_000, 1000)]
    assert found == sorted(found)  # type: ignore[type-var]
    assert all(arrival is not None and 0 <= turn - arrival < 8 for turn, arrival in enumerate(found, 1))


def test_results_that_were_removed_or_are_not_there_may_need_any_version(
    log: LogWriter, tmp_path: Path
) -> None:
    results = OldestResults(tmp_path)
    for arrival in range(1, 31):
        append(log, *[arrival] * 1000)
    Retention(max_bytes=1 << 14).apply(log, None, 10**18)
    assert log.begin > 1000
    assert oldest(results, 0) == 0
    assert asyncio.run(results.arrival("other", 0)) == 0
    first = oldest(results, log.begin)
    assert first is not None
    assert first > 1


def test_logs_that_nobody_asks_for_are_closed(log: LogWriter, tmp_path: Path) -> None:
    results = OldestResults(tmp_path)
    append(log, 50)
    oldest(results, 0)
    results.trim()
    assert oldest(results, 1) is None
    results.trim()
    results.trim()
    assert oldest(results, 0) == 50
