"""Delivery `sync`: results are read when they are on disk, in groups, and not before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.wire.resources import ActualState
from mavstream_protocol.wire.seams import NotRetained
from mavstream_server.columns.column import Column
from mavstream_server.log import LogDescription, LogOptions, LogWriter
from mavstream_server.results.service import ResultService
from mavstream_server.results.subscription import Subscription

SCHEMA = Schema((Field("n", FieldType.INT),))


class Query:
    """A query as its results see it."""

    id = "q"
    schema = SCHEMA
    epoch = 1
    revision = 0
    final: ActualState | None = None
    reason: str | None = None

    def not_retained(self, revision: int) -> tuple[NotRetained, ...]:
        return ()


class SlowDisk:
    """Syncs when the test lets it, or fails."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self.waiting.append((work, done))

    def settle(self) -> None:
        while self.waiting:
            self.finish()

    def finish(self, error: BaseException | None = None) -> None:
        work, done = self.waiting.pop(0)
        if error is None:
            work()
        done(error)


class Results:
    """A result log with its writer, read through a service."""

    def __init__(self, folder: Path, segment: int = 1 << 16) -> None:
        options = LogOptions(segment_bytes=segment)
        self.writer = LogWriter(folder / "q", LogDescription(SCHEMA), options)
        self.disk = SlowDisk()
        self.query = Query()
        self.service = ResultService(folder, background=self.disk)
        self.next = 0

    def append(self, rows: int) -> None:
        for _ in range(rows):
            self.writer.append({"n": Column.from_list(FieldType.INT, [self.next])}, 1, 1, producer=1)
            self.next += 1
        self.service.doorbell()

    def subscribe(self, after: int | str | None = None) -> Subscription:
        return Subscription(self.service, self.service.of(self.query), after)

    def pulled(self) -> list[int]:
        batches = self.service.pull(self.query).batches
        return [number for batch in batches for number in batch.column(0).to_pylist()]


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path)


def test_results_are_delivered_when_they_are_on_disk(results: Results) -> None:
    with results.subscribe() as subscription:
        assert "opened" in str(subscription.next_now())
        results.append(2)
        assert subscription.next_now() is None
        results.disk.finish()
        assert '"rows":[{"n":0},{"n":1}]' in str(subscription.next_now())


def test_what_comes_while_the_disk_is_busy_is_synced_together(results: Results) -> None:
    with results.subscribe() as subscription:
        subscription.next_now()
        results.append(1)
        for _ in range(5):
            results.append(1)
        assert len(results.disk.waiting) == 1
        results.disk.finish()
        assert '"rows":[{"n":0}]' in str(subscription.next_now())
        assert len(results.disk.waiting) == 1
        results.disk.finish()
        assert '"rows":[{"n":1},{"n":2},{"n":3},{"n":4},{"n":5}]' in str(subscription.next_now())
        assert not results.disk.waiting


def test_an_ended_query_is_closed_behind_its_last_synced_result(results: Results) -> None:
    results.append(1)
    results.query.final = ActualState.FINISHED
    with results.subscribe() as subscription:
        subscription.next_now()
        assert subscription.next_now() is None
        results.disk.finish()
        assert '"n":0' in str(subscription.next_now())
        assert "closed" in str(subscription.next_now())


def test_a_subscriber_resumes_at_an_offset_that_this_process_has_not_synced(results: Results) -> None:
    results.append(3)
    with results.subscribe(after=1) as subscription:
        subscription.next_now()
        assert subscription.next_now() is None
        results.disk.finish()
        assert '"offset":2' in str(subscription.next_now())


def test_a_pull_waits_for_the_disk(results: Results) -> None:
    results.append(2)
    assert results.pulled() == []

    async def pull() -> int:
        waiting = asyncio.ensure_future(results.service.pull_synced(results.query))
        while not results.disk.waiting:
            await asyncio.sleep(0)
        assert not waiting.done()
        results.disk.finish()
        return (await waiting).next

    assert asyncio.run(pull()) == 1
    assert results.pulled() == [0, 1]


def test_segments_are_synced_across_a_roll(tmp_path: Path) -> None:
    results = Results(tmp_path, segment=4096)
    with results.subscribe() as subscription:
        subscription.next_now()
        results.append(100)
        assert len(results.writer.segments) > 1
        while results.disk.waiting:
            results.disk.finish()
        assert results.service.of(results.query).readable_end == 100


def test_after_a_failed_sync_nothing_more_is_delivered(
    results: Results, caplog: pytest.LogCaptureFixture
) -> None:
    with results.subscribe() as subscription:
        subscription.next_now()
        results.append(1)
        results.disk.finish(OSError(5, "Input/output error"))
        results.append(1)
        assert subscription.next_now() is None
        assert not results.disk.waiting
    assert "results could not be synced" in caplog.text
