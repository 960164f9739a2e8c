"""Subscriptions over real result logs: messages, gaps, restarts, and shared encodings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.services.result_log import SCHEMA, Answers, available, fall_behind, numbers, waiting_for

from mavstream_protocol.tuples import decode_message, rows_of
from mavstream_protocol.wire.envelope import unseal
from mavstream_protocol.wire.resources import ActualState
from mavstream_protocol.wire.results import OnLag, RowsHeader
from mavstream_server.results.encoding import CHUNK_ROWS, MOST_BYTES, ResultFormat
from mavstream_server.results.service import OffsetAhead, TooManySubscribers
from mavstream_server.results.subscription import LATEST, Lagging

LIMIT = 10  # seconds, far more than any wait takes


@pytest.fixture
def answers(tmp_path: Path) -> Iterator[Answers]:
    with Answers(tmp_path, segment_bytes=64 << 10) as made:
        yield made


def test_a_subscriber_gets_the_fields_then_the_rows_with_offset_and_epoch(answers: Answers) -> None:
    answers.answer(2)
    answers.answer(1, room=None)
    opened, rows = available(answers.subscribe())
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


def test_rows_are_sent_as_arrow_if_requested(answers: Answers) -> None:
    answers.answer(3)
    _, message = available(answers.subscribe(format_=ResultFormat.ARROW))
    header, payload = unseal(message)
    assert RowsHeader.model_validate_json(header) == RowsHeader(offset=0, epoch=1, count=3)
    batch = decode_message(SCHEMA, payload)
    assert [row["n"] for row in rows_of(batch)] == [0, 1, 2]


@pytest.mark.parametrize("boundary", [0, 1, 9, 10, 11, 24, 498, 499, 500, 4_999, 5_001, 6_999])
def test_a_reconnect_at_any_boundary_misses_and_repeats_nothing(answers: Answers, boundary: int) -> None:
    answers.answer(10)
    answers.answer(15)
    answers.answer(6_975)
    with answers.subscribe() as first:
        before = [n for n in numbers(available(first)) if n <= boundary]
    with answers.subscribe(after=boundary) as second:
        opened, *rest = available(second)
        assert opened["next"] == boundary + 1
        answers.answer(5)
        rest += available(second)
    assert [message["offset"] for message in rest] == [message["rows"][0]["n"] for message in rest]
    assert before + numbers(rest) == list(range(7_005))


def test_latest_starts_after_the_existing_rows(answers: Answers) -> None:
    answers.answer(7)
    subscription = answers.subscribe(after=LATEST)
    assert [message["type"] for message in available(subscription)] == ["opened"]
    answers.answer(2)
    assert numbers(available(subscription)) == [7, 8]


def test_an_offset_in_the_future_is_refused(answers: Answers) -> None:
    answers.answer(3)
    with pytest.raises(OffsetAhead, match="answered up to offset 2, and rows after 3 were asked for"):
        answers.subscribe(after=3)
    assert answers.service.subscribers == 0


def test_a_subscriber_waits_for_a_log_that_does_not_exist_yet(answers: Answers) -> None:
    async def run() -> list[Any]:
        subscription = answers.subscribe()
        opened = await subscription.next()
        waiting = await waiting_for(subscription)
        answers.answer(2)
        return [opened, await asyncio.wait_for(waiting, LIMIT)]

    opened, rows = map(json.loads, asyncio.run(run()))
    assert (opened["next"], rows["offset"], len(rows["rows"])) == (0, 0, 2)


def test_rows_appended_between_reading_and_waiting_wake_a_subscriber(answers: Answers) -> None:
    async def run() -> int:
        subscription = answers.subscribe()
        await subscription.next()
        received = 0
        for _ in range(50):
            waiting = await waiting_for(subscription)
            answers.answer(1)
            message = await asyncio.wait_for(waiting, LIMIT)
            assert isinstance(message, str)
            received += len(json.loads(message)["rows"])
        return received

    assert asyncio.run(run()) == 50


def test_a_hundred_subscribers_cost_one_encoding_per_chunk(answers: Answers) -> None:
    async def run() -> list[list[int]]:
        subscriptions = [answers.subscribe() for _ in range(100)]
        received: list[list[int]] = [[] for _ in subscriptions]
        for each in subscriptions:
            await each.next()
        for _ in range(20):
            waiting = [await waiting_for(each) for each in subscriptions]
            answers.answer(10)
            messages = await asyncio.wait_for(asyncio.gather(*waiting), LIMIT)
            for got, message in zip(received, messages, strict=True):
                got += numbers([json.loads(message or "")])
        return received

    assert asyncio.run(run()) == [list(range(200))] * 100
    assert answers.service.counters.encodings == 20
    assert answers.service.counters.rows == 20_000


def test_subscribers_that_began_at_different_offsets_come_to_share_encodings(answers: Answers) -> None:
    rows = 4 * CHUNK_ROWS[ResultFormat.ROWS]
    answers.answer(rows)
    early, late = answers.subscribe(), answers.subscribe(after=122)
    assert numbers(available(early)) == list(range(rows))
    assert answers.service.counters.encodings == 4
    assert numbers(available(late)) == list(range(123, rows))
    assert answers.service.counters.encodings == 5


def test_chunks_are_bounded_in_rows_and_bytes(answers: Answers) -> None:
    answers.answer(12_000)
    sizes = [len(message["rows"]) for message in available(answers.subscribe())[1:]]
    assert sizes == [500] * 24
    frames = available(answers.subscribe(format_=ResultFormat.ARROW))[1:]
    sizes = [RowsHeader.model_validate_json(unseal(frame)[0]).count for frame in frames]
    assert sizes == [5_000, 5_000, 2_000]
    for _ in range(4):
        answers.answer(100, room="x" * 20_000)
    subscription = answers.subscribe(after=11_999)
    texts = []
    while (message := subscription.next_now()) is not None:
        texts.append(message)
    assert max(map(len, texts)) < MOST_BYTES * 1.1
    assert sum(len(json.loads(text).get("rows", ())) for text in texts) == 400


def test_one_row_larger_than_a_chunk_is_sent(answers: Answers) -> None:
    answers.answer(2, room="y" * (2 * MOST_BYTES))
    assert numbers(available(answers.subscribe())) == [0, 1]


def test_rows_removed_before_they_were_read_are_a_gap_and_counted(answers: Answers) -> None:
    answers.answer(10)
    begin = fall_behind(answers)
    assert begin > 10
    messages = available(answers.subscribe(after=4))
    gap = messages[1]
    assert (gap["type"], gap["start"], gap["stop"], gap["reason"]) == ("gap", 5, begin, "retention")
    assert "removed before they were read" in gap["detail"]
    assert numbers(messages) == list(range(begin, 100_010))
    assert (answers.service.counters.gaps, answers.service.counters.missed) == (1, begin - 5)


def test_without_an_offset_all_existing_rows_are_sent_without_a_gap(answers: Answers) -> None:
    begin = fall_behind(answers)
    messages = available(answers.subscribe())
    assert messages[0]["next"] == begin
    assert {message["type"] for message in messages[1:]} == {"rows"}
    assert numbers(messages) == list(range(begin, 100_000))


def test_a_subscriber_that_fell_behind_gets_a_gap(answers: Answers) -> None:
    subscription = answers.subscribe()
    answers.answer(10)
    assert numbers(available(subscription)) == list(range(10))
    begin = fall_behind(answers)
    messages = available(subscription)
    gaps = [message for message in messages if message["type"] == "gap"]
    read = numbers(messages)
    # Rows that its cursor has mapped may still be sent; then the gap, then all the others.
    assert [gap["stop"] for gap in gaps] == [begin]
    assert read == [*range(10, gaps[0]["start"]), *range(begin, 100_010)]


def test_a_subscriber_with_on_lag_disconnect_is_disconnected_when_it_falls_behind(answers: Answers) -> None:
    answers.answer(10)
    fall_behind(answers)
    subscription = answers.subscribe(after=4, on_lag=OnLag.DISCONNECT)
    assert subscription.next_now() is not None
    with pytest.raises(Lagging, match="rows 5 to "):
        subscription.next_now()
    assert answers.service.counters.disconnected == 1


def test_a_restart_is_announced_between_the_rows_of_two_epochs(answers: Answers) -> None:
    answers.answer(3)
    answers.restart()
    answers.answer(2)
    messages = available(answers.subscribe())
    assert [message["type"] for message in messages] == ["opened", "rows", "gap", "rows"]
    assert [message["epoch"] for message in messages] == [1, 1, 2, 2]
    gap = messages[2]
    assert (gap["start"], gap["stop"], gap["reason"]) == (3, 3, "restart")
    assert numbers(messages) == [0, 1, 2, 3, 4]


def test_a_waiting_subscriber_gets_a_restart_before_there_are_rows(answers: Answers) -> None:
    answers.answer(1)

    async def run() -> str | bytes | None:
        subscription = answers.subscribe(after=LATEST)
        await subscription.next()
        waiting = await waiting_for(subscription)
        answers.restart()
        return await asyncio.wait_for(waiting, LIMIT)

    message = asyncio.run(run())
    assert message is not None
    gap = json.loads(message)
    assert (gap["type"], gap["epoch"], gap["reason"]) == ("gap", 2, "restart")


def test_a_restart_while_a_subscriber_was_disconnected_is_announced_when_it_reconnects(
    answers: Answers,
) -> None:
    answers.answer(3)
    answers.restart()
    opened, gap = available(answers.subscribe(after=2))
    assert (opened["epoch"], gap["type"], gap["epoch"]) == (1, "gap", 2)
    answers.answer(1)
    opened, *rest = available(answers.subscribe(after=3))
    assert (opened["epoch"], rest) == (2, [])


def test_closed_is_sent_after_the_last_row_and_nothing_after_it(answers: Answers) -> None:
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


def test_subscribers_of_a_removed_query_are_closed_and_its_files_removed(answers: Answers) -> None:
    answers.answer(2)

    async def run() -> Any:
        subscription = answers.subscribe(after=LATEST)
        await subscription.next()
        waiting = await waiting_for(subscription)
        assert answers.writer is not None
        answers.writer.close()
        answers.service.remove(answers.query.id)
        return json.loads(await asyncio.wait_for(waiting, LIMIT) or "")

    assert asyncio.run(run()) == {"type": "closed", "state": "stopped", "detail": "the query was removed"}
    assert not answers.path.exists()


def test_subscribers_above_the_limit_are_refused_until_one_leaves(answers: Answers) -> None:
    answers.service.max_subscribers = 2
    with answers.subscribe(), answers.subscribe():
        with pytest.raises(TooManySubscribers, match="2 subscriptions are open"):
            answers.subscribe()
        assert answers.service.subscribers_of("hot-abc") == 2
    with answers.subscribe():
        assert answers.service.subscribers == 1
    assert answers.service.subscribers_of("hot-abc") == 0
