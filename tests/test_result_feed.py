"""Results on their way out: portions, subscriptions, pulls, over real result logs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mavstream_protocol import Schema
from mavstream_protocol.tuples import decode_message, decode_stream, rows_of
from mavstream_protocol.wire.envelope import unseal
from mavstream_protocol.wire.resources import ActualState, PulledResults
from mavstream_protocol.wire.results import OnLag, RowsHeader
from mavstream_server.columns.column import Column
from mavstream_server.log import LogDescription, LogOptions, LogWriter, Retention
from mavstream_server.service.portions import MOST_BYTES, MOST_ROWS, ResultFormat
from mavstream_server.service.results import (
    MOST_PULLED,
    OffsetAhead,
    ResultFeed,
    TooManySubscribers,
)
from mavstream_server.service.subscriptions import LATEST, Lagging, Subscription
from mavstream_server.testing.streams import parse_fields

SCHEMA = parse_fields("room string null, n int, at timestamp")
LIMIT = 10  # seconds that no wait here comes near


@dataclass
class Query:
    """A query as the feed sees it."""

    id: str = "hot-abc"
    schema: Schema = SCHEMA
    epoch: int = 1
    final: ActualState | None = None
    reason: str | None = None


class Answers:
    """A query, its result log and the feed over it."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.query = Query()
        self.feeds = ResultFeed(path)
        self.options = LogOptions(**options)
        self.path = path / self.query.id
        self.writer: LogWriter | None = None

    def answer(self, count: int, room: str | None = "hall", ring: bool = True) -> None:
        """Append so many rows in one frame, as the engine does."""
        if self.writer is None:
            self.writer = LogWriter(self.path, LogDescription(self.query.schema), self.options)
        first = self.writer.end
        values: dict[str, list[Any]] = {
            "room": [room] * count,
            "n": list(range(first, first + count)),
            "at": [1_000_000 * n for n in range(first, first + count)],
        }
        columns = {field.name: Column.from_list(field.type, values[field.name]) for field in SCHEMA}
        self.writer.append(columns, count, 1_000 + first, producer=self.query.epoch)
        if ring:
            self.feeds.doorbell()

    def forget(self) -> int:
        """Remove all but the segment being written, whoever needs them; return what is left to begin with."""
        assert self.writer is not None
        Retention(max_bytes=1).apply(self.writer, None, 0, force=True)
        return self.writer.begin

    def restart(self) -> None:
        self.query.epoch += 1
        self.feeds.changed(self.query.id)

    def end(self, state: ActualState = ActualState.FINISHED, reason: str | None = None) -> None:
        self.query.final, self.query.reason = state, reason
        self.feeds.changed(self.query.id)

    def subscribe(
        self,
        after: int | str | None = None,
        format_: ResultFormat = ResultFormat.ROWS,
        on_lag: OnLag = OnLag.GAP,
    ) -> Subscription:
        return Subscription(self.feeds, self.feeds.feed(self.query), after, format_, on_lag)


@pytest.fixture
def answers(tmp_path: Path) -> Iterator[Answers]:
    made = Answers(tmp_path, segment_bytes=64 << 10)
    yield made
    if made.writer is not None:
        made.writer.close()


def at_hand(subscription: Subscription) -> list[Any]:
    """Return the messages that are there now: JSON taken apart, binary ones as they are."""
    found = []
    while (message := subscription.next_now()) is not None:
        found.append(json.loads(message) if isinstance(message, str) else message)
        if found[-1] and isinstance(found[-1], dict) and found[-1]["type"] == "closed":
            break
    return found


def numbers(messages: list[Any]) -> list[int]:
    return [row["n"] for message in messages if message["type"] == "rows" for row in message["rows"]]


def test_a_subscriber_is_told_the_fields_then_the_rows_with_offset_and_epoch(answers: Answers) -> None:
    answers.answer(2)
    answers.answer(1, room=None)
    opened, rows = at_hand(answers.subscribe())
    assert opened == {
        "type": "opened",
        "query": "hot-abc",
        "fields": [
            {"name": "room", "type": "string", "nullable": True},
            {"name": "n", "type": "int", "nullable": False},
            {"name": "at", "type": "timestamp", "nullable": False},
        ],
        "next": 0,
        "epoch": 1,
    }
    assert rows == {
        "type": "rows",
        "offset": 0,
        "epoch": 1,
        "rows": [
            {"room": "hall", "n": 0, "at": "1970-01-01T00:00:00.000000Z"},
            {"room": "hall", "n": 1, "at": "1970-01-01T00:00:01.000000Z"},
            {"room": None, "n": 2, "at": "1970-01-01T00:00:02.000000Z"},
        ],
    }


def test_rows_come_as_arrow_where_asked_for(answers: Answers) -> None:
    answers.answer(3)
    _, message = at_hand(answers.subscribe(format_=ResultFormat.ARROW))
    header, payload = unseal(message)
    assert RowsHeader.model_validate_json(header) == RowsHeader(offset=0, epoch=1, count=3)
    batch = decode_message(SCHEMA, payload)
    assert [row["n"] for row in rows_of(batch)] == [0, 1, 2]


@pytest.mark.parametrize("boundary", [0, 1, 9, 10, 11, 24, 4_998, 4_999, 5_000, 5_001, 6_999])
def test_a_reconnecting_subscriber_misses_and_repeats_nothing_at_any_boundary(
    answers: Answers, boundary: int
) -> None:
    answers.answer(10)
    answers.answer(15)
    answers.answer(6_975)
    with answers.subscribe() as first:
        before = [n for n in numbers(at_hand(first)) if n <= boundary]
    with answers.subscribe(after=boundary) as second:
        opened, *rest = at_hand(second)
        assert opened["next"] == boundary + 1
        answers.answer(5)
        rest += at_hand(second)
    assert [message["offset"] for message in rest] == [message["rows"][0]["n"] for message in rest]
    assert before + numbers(rest) == list(range(7_005))


def test_latest_begins_with_the_rows_to_come(answers: Answers) -> None:
    answers.answer(7)
    subscription = answers.subscribe(after=LATEST)
    assert [message["type"] for message in at_hand(subscription)] == ["opened"]
    answers.answer(2)
    assert numbers(at_hand(subscription)) == [7, 8]


def test_an_offset_that_was_not_reached_is_refused(answers: Answers) -> None:
    answers.answer(3)
    with pytest.raises(OffsetAhead, match="answered up to offset 2, and rows after 3 were asked for"):
        answers.subscribe(after=3)
    assert answers.feeds.subscribers == 0


def test_a_subscriber_waits_for_a_log_that_the_engine_has_not_made(answers: Answers) -> None:
    async def run() -> list[Any]:
        subscription = answers.subscribe()
        opened = await subscription.next()
        waiting = asyncio.create_task(subscription.next())
        await asyncio.sleep(0)
        assert not waiting.done()
        answers.answer(2)
        return [opened, await asyncio.wait_for(waiting, LIMIT)]

    opened, rows = map(json.loads, asyncio.run(run()))
    assert (opened["next"], rows["offset"], len(rows["rows"])) == (0, 0, 2)


def test_rows_that_came_between_the_look_and_the_wait_are_not_slept_through(answers: Answers) -> None:
    async def run() -> int:
        subscription = answers.subscribe()
        await subscription.next()
        received = 0
        for _ in range(50):
            waiting = asyncio.create_task(subscription.next())
            await asyncio.sleep(0)
            answers.answer(1)
            message = await asyncio.wait_for(waiting, LIMIT)
            assert isinstance(message, str)
            received += len(json.loads(message)["rows"])
        return received

    assert asyncio.run(run()) == 50


def test_a_hundred_subscribers_cost_one_encoding_per_portion(answers: Answers) -> None:
    async def follow(subscription: Subscription, rows: int) -> list[int]:
        got: list[int] = []
        while len(got) < rows:
            message = await asyncio.wait_for(subscription.next(), LIMIT)
            assert isinstance(message, str)
            told = json.loads(message)
            got += numbers([told])
        return got

    async def run() -> list[list[int]]:
        subscriptions = [answers.subscribe() for _ in range(100)]
        tasks = [asyncio.create_task(follow(each, 200)) for each in subscriptions]
        for _ in range(20):
            await asyncio.sleep(0)
            answers.answer(10)
        return await asyncio.gather(*tasks)

    assert asyncio.run(run()) == [list(range(200))] * 100
    assert answers.feeds.counters.encodings <= 20
    assert answers.feeds.counters.rows == 20_000


def test_subscribers_that_began_apart_come_to_share_encodings(answers: Answers) -> None:
    answers.answer(4 * MOST_ROWS)
    early, late = answers.subscribe(), answers.subscribe(after=1_233)
    assert numbers(at_hand(early)) == list(range(4 * MOST_ROWS))
    assert answers.feeds.counters.encodings == 4
    assert numbers(at_hand(late)) == list(range(1_234, 4 * MOST_ROWS))
    assert answers.feeds.counters.encodings == 5


def test_portions_are_bounded_in_rows_and_bytes(answers: Answers) -> None:
    answers.answer(12_000)
    sizes = [len(message["rows"]) for message in at_hand(answers.subscribe())[1:]]
    assert sizes == [5_000, 5_000, 2_000]
    for _ in range(4):
        answers.answer(100, room="x" * 20_000)
    subscription = answers.subscribe(after=11_999)
    texts = []
    while (message := subscription.next_now()) is not None:
        texts.append(message)
    assert max(map(len, texts)) < MOST_BYTES * 1.1
    assert sum(len(json.loads(text).get("rows", ())) for text in texts) == 400


def test_one_row_larger_than_a_portion_still_comes(answers: Answers) -> None:
    answers.answer(2, room="y" * (2 * MOST_BYTES))
    assert numbers(at_hand(answers.subscribe())) == [0, 1]


def fall_behind(answers: Answers) -> int:
    for _ in range(100):
        answers.answer(1_000)
    return answers.forget()


def test_rows_gone_before_they_were_read_are_told_as_a_gap_and_counted(answers: Answers) -> None:
    answers.answer(10)
    begin = fall_behind(answers)
    assert begin > 10
    messages = at_hand(answers.subscribe(after=4))
    gap = messages[1]
    assert (gap["type"], gap["start"], gap["stop"], gap["reason"]) == ("gap", 5, begin, "retention")
    assert "removed before they were read" in gap["detail"]
    assert numbers(messages) == list(range(begin, 100_010))
    assert (answers.feeds.counters.gaps, answers.feeds.counters.missed) == (1, begin - 5)


def test_without_an_offset_all_that_is_kept_comes_and_no_gap(answers: Answers) -> None:
    begin = fall_behind(answers)
    messages = at_hand(answers.subscribe())
    assert messages[0]["next"] == begin
    assert {message["type"] for message in messages[1:]} == {"rows"}
    assert numbers(messages) == list(range(begin, 100_000))


def test_a_subscriber_that_stood_still_while_the_log_went_on_is_told(answers: Answers) -> None:
    subscription = answers.subscribe()
    answers.answer(10)
    assert numbers(at_hand(subscription)) == list(range(10))
    begin = fall_behind(answers)
    messages = at_hand(subscription)
    gaps = [message for message in messages if message["type"] == "gap"]
    read = numbers(messages)
    # What its cursor had mapped may still come; then the gap, then all the rest.
    assert [gap["stop"] for gap in gaps] == [begin]
    assert read == [*range(10, gaps[0]["start"]), *range(begin, 100_010)]


def test_a_subscriber_that_asked_for_it_is_disconnected_when_it_falls_behind(answers: Answers) -> None:
    answers.answer(10)
    fall_behind(answers)
    subscription = answers.subscribe(after=4, on_lag=OnLag.DISCONNECT)
    assert subscription.next_now() is not None
    with pytest.raises(Lagging, match="rows 5 to "):
        subscription.next_now()
    assert answers.feeds.counters.disconnected == 1


def test_a_restart_is_told_between_the_rows_of_two_epochs(answers: Answers) -> None:
    answers.answer(3)
    answers.restart()
    answers.answer(2)
    messages = at_hand(answers.subscribe())
    assert [message["type"] for message in messages] == ["opened", "rows", "gap", "rows"]
    assert [message["epoch"] for message in messages] == [1, 1, 2, 2]
    gap = messages[2]
    assert (gap["start"], gap["stop"], gap["reason"]) == (3, 3, "restart")
    assert numbers(messages) == [0, 1, 2, 3, 4]


def test_who_waits_is_told_of_a_restart_before_there_are_rows(answers: Answers) -> None:
    answers.answer(1)

    async def run() -> str | bytes | None:
        subscription = answers.subscribe(after=LATEST)
        await subscription.next()
        waiting = asyncio.create_task(subscription.next())
        await asyncio.sleep(0)
        answers.restart()
        return await asyncio.wait_for(waiting, LIMIT)

    message = asyncio.run(run())
    assert message is not None
    gap = json.loads(message)
    assert (gap["type"], gap["epoch"], gap["reason"]) == ("gap", 2, "restart")


def test_a_restart_while_a_subscriber_was_away_is_told_when_it_is_back(answers: Answers) -> None:
    answers.answer(3)
    answers.restart()
    opened, gap = at_hand(answers.subscribe(after=2))
    assert (opened["epoch"], gap["type"], gap["epoch"]) == (1, "gap", 2)
    answers.answer(1)
    opened, *rest = at_hand(answers.subscribe(after=3))
    assert (opened["epoch"], rest) == (2, [])


def test_closed_comes_behind_the_last_row_and_nothing_behind_it(answers: Answers) -> None:
    answers.answer(2)

    async def run() -> list[Any]:
        subscription = answers.subscribe()
        answers.end(ActualState.FAILED, "overflow in 'sum'")
        return [await asyncio.wait_for(subscription.next(), LIMIT) for _ in range(4)]

    opened, rows, closed, nothing = asyncio.run(run())
    assert json.loads(opened)["type"] == "opened"
    assert len(json.loads(rows)["rows"]) == 2
    assert json.loads(closed) == {"type": "closed", "state": "failed", "detail": "overflow in 'sum'"}
    assert nothing is None


def test_subscribers_of_a_removed_query_are_told_and_its_files_are_gone(answers: Answers) -> None:
    answers.answer(2)

    async def run() -> Any:
        subscription = answers.subscribe(after=LATEST)
        await subscription.next()
        waiting = asyncio.create_task(subscription.next())
        await asyncio.sleep(0)
        assert answers.writer is not None
        answers.writer.close()
        answers.feeds.remove(answers.query.id)
        return json.loads(await asyncio.wait_for(waiting, LIMIT) or "")

    assert asyncio.run(run()) == {"type": "closed", "state": "stopped", "detail": "the query was removed"}
    assert not answers.path.exists()


def test_more_subscribers_than_allowed_are_refused_and_leaving_makes_room(answers: Answers) -> None:
    answers.feeds.max_subscribers = 2
    with answers.subscribe(), answers.subscribe():
        with pytest.raises(TooManySubscribers, match="2 subscriptions are open"):
            answers.subscribe()
        assert answers.feeds.subscribers_of("hot-abc") == 2
    with answers.subscribe():
        assert answers.feeds.subscribers == 1
    assert answers.feeds.subscribers_of("hot-abc") == 0


def pull(answers: Answers, after: int | None = None, limit: int = 1_000) -> PulledResults:
    return PulledResults.model_validate_json(answers.feeds.pull(answers.query, after, limit).json())


def test_pulling_page_by_page_gives_every_row_once(answers: Answers) -> None:
    for size in (1, 999, 1, 3_000, 6_500, 2):
        answers.answer(size)
    got: list[int] = []
    after: int | None = None
    while (part := pull(answers, after, 777)).rows:
        got += [row["n"] for row in part.rows]
        assert part.next == got[-1]
        after = part.next
    assert got == list(range(10_503))
    assert part.next == 10_502
    answers.answer(1)
    assert [row["n"] for row in pull(answers, after).rows] == [10_503]


def test_a_pull_of_a_query_without_answers_can_be_gone_on_with(answers: Answers) -> None:
    empty = pull(answers)
    assert (empty.rows, empty.next, empty.epoch, empty.gap) == ([], -1, 1, None)
    answers.answer(2)
    assert [row["n"] for row in pull(answers, empty.next).rows] == [0, 1]


def test_a_pull_gives_no_more_than_the_limit_nor_than_is_allowed(answers: Answers) -> None:
    answers.answer(MOST_PULLED + 5)
    assert len(pull(answers, limit=3).rows) == 3
    assert len(pull(answers, limit=MOST_PULLED + 100).rows) == MOST_PULLED


def test_a_pull_tells_of_rows_that_are_gone(answers: Answers) -> None:
    begin = fall_behind(answers)
    part = pull(answers, after=9, limit=5)
    assert part.gap == (10, begin)
    assert [row["n"] for row in part.rows] == list(range(begin, begin + 5))


def test_a_pull_ends_where_the_epoch_changes(answers: Answers) -> None:
    answers.answer(3)
    answers.restart()
    answers.answer(3)
    first = pull(answers)
    second = pull(answers, first.next)
    assert ([row["n"] for row in first.rows], first.epoch) == ([0, 1, 2], 1)
    assert ([row["n"] for row in second.rows], second.epoch) == ([3, 4, 5], 2)


def test_a_pull_as_arrow_means_the_same(answers: Answers) -> None:
    answers.answer(2_000)
    answers.answer(1, room=None)
    pulled = answers.feeds.pull(answers.query, 9, 5_000)
    batch = decode_stream(SCHEMA, pulled.arrow())
    assert rows_of(batch) == json.loads(pulled.json())["rows"]
    empty = answers.feeds.pull(answers.query, 2_000)
    assert decode_stream(SCHEMA, empty.arrow()).num_rows == 0


def test_logs_that_nobody_asks_for_are_let_go(tmp_path: Path) -> None:
    feeds = ResultFeed(tmp_path)
    first = feeds.feed(Query(id="q-0"))
    for number in range(1, 200):
        feeds.feed(Query(id=f"q-{number}"))
    assert feeds.feed(Query(id="q-0")) is not first
