"""Rows that are staged are published as one batch, once, whenever the server dies."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from tests.support.services.stream_store import EVENTS, NUMBERS, Server, events, numbers, spec

from mavstream_protocol.tokens import Role
from mavstream_server.core.errors import Forbidden, NotFound, TooLarge, TooMany
from mavstream_server.core.principal import ANYBODY, Principal
from mavstream_server.ingest.append_handle import Accepted, Outcome, Repeated
from mavstream_server.ingest.staging.publishing import Publisher, StagedBatch
from mavstream_server.ingest.staging.stages import StageStore
from mavstream_server.testing import ManualClock

T = TypeVar("T")
ALICE, BOB = (Principal(name, Role.FEEDER) for name in ("alice", "bob"))
HOUR_US = 3_600_000_000


class Publishing:
    """A publisher over a store that is flushed by hand; `again` is what a new process finds."""

    def __init__(self, server: Server, most_bytes: int = 1 << 20, batch_bytes: int = 1 << 20) -> None:
        self.server = server
        self._limits = most_bytes, batch_bytes
        self._open()

    def _open(self) -> None:
        most_bytes, batch_bytes = self._limits
        folder = self.server.path / "stages"
        store, clock = self.server.store, self.server.clock
        self.stages = StageStore(folder, store, clock, most_bytes, HOUR_US)
        self.publisher = Publisher(self.server.store, self.stages, batch_bytes)

    def again(self) -> None:
        self.server.again()
        self._open()

    def put(self, name: str, rows: pa.RecordBatch, who: Principal = ANYBODY, stream: str = "numbers") -> None:
        self._run(self.stages.put(stream, name, rows, who))

    def publish(self, sequence: int, *stages: str, **given: Any) -> Outcome:
        return self._run(self.begin(sequence, *stages, **given))

    def begin(
        self,
        sequence: int,
        *stages: str,
        stream: str = "numbers",
        producer: str = "p",
        ends: bool = False,
        who: Principal = ANYBODY,
    ) -> Coroutine[Any, Any, Outcome]:
        return self.publisher.publish(StagedBatch(stream, producer, sequence, stages, ends), who)

    def names(self, stream: str = "numbers") -> list[str]:
        return [stage.name for stage in self.stages.of_stream(stream)]

    def run_all(self, *given: Coroutine[Any, Any, T]) -> list[T]:
        async def main() -> list[T]:
            tasks = [asyncio.ensure_future(each) for each in given]
            while not all(task.done() for task in tasks):
                await asyncio.sleep(0)
                self.server.store.flush()
            return [task.result() for task in tasks]

        return asyncio.run(main())

    def _run(self, given: Coroutine[Any, Any, T]) -> T:
        return self.run_all(given)[0]


@pytest.fixture
def server(tmp_path: Path, clock: ManualClock) -> Iterator[Server]:
    with Server(tmp_path, clock) as made:
        made.start().create(spec(NUMBERS))
        made.store.create(spec(EVENTS))
        yield made


def test_a_batch_is_one_frame_in_the_order_of_its_stages(server: Server) -> None:
    made = Publishing(server)
    for name, value in (("b", 3), ("a", 1), ("unused", 9)):
        made.put(name, numbers(value, value + 1))
    assert server.values("numbers") == []
    assert made.publish(1, "b", "a") == Accepted(1, 0, 4)
    assert server.values("numbers") == [3, 4, 1, 2]
    assert [frame.rows for frame in server.frames("numbers") if frame.rows] == [4]
    assert made.names() == ["unused"]


def test_a_published_sequence_is_ignored_and_later_ones_may_be_left_out(server: Server) -> None:
    made = Publishing(server)
    for sequence, value in ((3, 30), (7, 70)):
        made.put("s", numbers(value))
        assert made.publish(sequence, "s") == Accepted(sequence, value == 70, 1)
    for sequence in (7, 5, 1):
        made.put("s", numbers(-1))
        assert made.publish(sequence, "s") == Repeated(sequence, 7)
        assert made.names() == [], "the stages of a repetition are removed"
    made.put("s", numbers(1))
    assert made.publish(1, "s", producer="q") == Accepted(1, 2, 1)
    assert server.values("numbers") == [30, 70, 1]


def test_a_batch_without_rows_counts(server: Server) -> None:
    made = Publishing(server)
    assert made.publish(4) == Accepted(4, 0, 0)
    made.put("s", numbers(1))
    assert made.publish(4, "s") == Repeated(4, 4)
    assert server.values("numbers") == []


def test_the_same_batch_twice_at_once_is_published_once(server: Server) -> None:
    made = Publishing(server)
    made.put("s", numbers(1, 2))
    outcomes = made.run_all(*(made.begin(1, "s") for _ in range(3)))
    assert sorted(map(type, outcomes), key=str) == [Accepted, Repeated, Repeated]
    assert server.values("numbers") == [1, 2]


def test_rows_are_published_in_the_order_of_event_time(server: Server) -> None:
    made = Publishing(server)
    made.put("left", events(10, 30, 30, home="l"), stream="events")
    made.put("right", events(20, 30, 5, home="r"), stream="events")
    made.publish(1, "left", "right", stream="events")
    (frame,) = [frame for frame in server.frames("events") if frame.rows]
    times, homes = (frame.column(name) for name in ("at", "home"))
    assert homes.dictionary is not None
    codes = homes.values.tolist()
    found = list(zip(times.values.tolist(), (homes.dictionary.values[code] for code in codes), strict=True))
    assert found == [(5, "r"), (10, "l"), (20, "r"), (30, "l"), (30, "l"), (30, "r")]


def test_a_producer_that_ends_holds_no_watermark(server: Server) -> None:
    made = Publishing(server)
    for producer, ends in (("stays", False), ("goes", True)):
        made.put("s", events(1_000_000), stream="events")
        made.publish(1, "s", stream="events", producer=producer, ends=ends)
    server.store.offer("fast", "events", 1, events(5_000_000), 8)
    server.store.flush()
    assert server.store.info("events").watermark == "1970-01-01T00:00:01.000000Z"
    made.publish(2, stream="events", producer="stays", ends=True)
    assert server.store.info("events").watermark == "1970-01-01T00:00:05.000000Z"


def test_stages_and_published_batches_outlive_the_process(server: Server) -> None:
    made = Publishing(server)
    made.put("published", numbers(1))
    made.publish(1, "published")
    made.put("waiting", numbers(2), ALICE)
    (server.path / "stages" / "numbers" / "torn-1.draft").write_bytes(b"AR")
    (server.path / "stages" / "numbers" / "garbled.arrow").write_bytes(b"ARROW1 and no more")
    made.again()
    assert made.names() == ["waiting"]
    assert [path.name for path in (server.path / "stages" / "numbers").iterdir()] == ["waiting.arrow"]
    with pytest.raises(Forbidden, match="belongs to token 'alice', and this is token 'bob'"):
        made.publish(2, "waiting", who=BOB)
    assert made.publish(1, "waiting", who=BOB) == Repeated(1, 1)
    assert made.names() == ["waiting"], "nobody removes what belongs to others"
    assert made.publish(2, "waiting", who=ALICE) == Accepted(2, 1, 1)
    made.again()
    made.put("again", numbers(2))
    assert made.publish(2, "again") == Repeated(2, 2)
    assert server.values("numbers") == [1, 2]


def test_stages_that_are_not_published_expire(server: Server) -> None:
    made = Publishing(server)
    made.put("old", numbers(1))
    server.clock.advance(seconds=1800)
    made.put("new", numbers(2))
    made.again()
    server.clock.advance(seconds=1801)
    made.stages.expire()
    assert made.names() == ["new"]
    with pytest.raises(NotFound, match=r"no stage 'old'.*send its rows again") as caught:
        made.publish(1, "new", "old")
    assert caught.value.code == "unknown_stage"
    assert (made.names(), server.values("numbers")) == (["new"], [])
    server.clock.advance(seconds=1800)
    made.stages.expire()
    assert (made.names(), made.stages.nbytes) == ([], 0)


def test_stages_are_bounded(server: Server) -> None:
    rows = numbers(*range(1_000))
    made = Publishing(server, most_bytes=20_000, batch_bytes=15_000)
    made.put("a", rows)
    made.put("b", rows)
    made.put("b", rows)
    with pytest.raises(TooMany, match="MAVSTREAM_MAX_STAGE_BYTES") as caught:
        made.put("c", rows)
    assert caught.value.code == "too_many_stages"
    with pytest.raises(TooLarge, match=r"the 2 stages have .* MAVSTREAM_MAX_BATCH_BYTES"):
        made.publish(1, "a", "b")
    made.publish(1, "a")
    made.put("c", rows)
    assert made.names() == ["b", "c"]


def test_a_removed_stream_takes_its_stages_along(server: Server) -> None:
    made = Publishing(server)
    made.put("s", numbers(1))
    made.put("t", events(1), stream="events")
    made.stages.remove_stream("numbers")
    assert (made.names(), made.names("events")) == ([], ["t"])
    assert not (server.path / "stages" / "numbers").exists()
    # As if the server had died before the stages were removed.
    server.store.remove("events")
    made.again()
    assert (made.names("events"), made.stages.nbytes) == ([], 0)
    assert not (server.path / "stages" / "events").exists()
