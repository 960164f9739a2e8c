"""Small pending frames are appended as one, in turns, with the arrival, ack or rejection of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.services.stream_store import (
    NUMBERS,
    ManualTimers,
    Producer,
    Server,
    limited_files,
    numbers,
    spec,
)

from mavstream_server.core.event_loop.background import Inline
from mavstream_server.testing import ManualClock


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path, ManualClock()) as made:
        yield made


@pytest.fixture
def producer(server: Server) -> Producer:
    """Start a server with streams a, b and c of one schema; return a producer of them."""
    store = server.start()
    for name in "abc":
        store.create(spec(NUMBERS, name=name))
    return Producer(server, *"abc")


def test_pending_frames_are_appended_as_one_with_the_arrival_of_each_row(
    server: Server, producer: Producer
) -> None:
    arrivals = []
    for sequence in range(1, 5):
        server.clock.advance(nanoseconds=1_000_000)
        arrivals += [server.clock.now()] * sequence
        producer.send(numbers(*range(sequence + 1)), ("a", sequence, sequence), ("b", sequence, 1))
    assert server.values("a") == []
    assert producer.acked() == {"a": 4, "b": 4}
    (frame,) = server.frames("a")
    assert (frame.rows, frame.sequence, frame.arrival) == (10, 4, arrivals[-1])
    assert server.arrivals("a") == arrivals
    assert server.values("a") == [0, 0, 1, 0, 1, 2, 0, 1, 2, 3]
    assert server.store.counts("a")[:2] == (4, 10)
    # Reopened, the log continues after the last of them.
    server.again()
    producer = Producer(server, *"abc")
    producer.send(numbers(9), ("a", 4, 1))
    producer.send(numbers(9), ("a", 5, 1))
    assert producer.acked() == {"a": 5}
    assert len(server.values("a")) == 11


def test_rows_of_two_producers_keep_their_order(server: Server, producer: Producer) -> None:
    other = Producer(server, "a", name="q")
    turns = ((1, producer, 1), (2, producer, 2), (3, other, 1), (4, producer, 3), (5, producer, 4))
    for number, sender, sequence in turns:
        sender.send(numbers(number), ("a", sequence, 1))
    assert producer.acked() == {"a": 4}
    assert other.acked() == {"a": 1}
    assert server.values("a") == [1, 2, 3, 4, 5]
    assert [frame.sequence for frame in server.frames("a")] == [2, 1, 4]


def test_a_connection_gets_acks_of_its_own_frames_only(server: Server, producer: Producer) -> None:
    producer.send(numbers(1), ("a", 1, 1))
    new = Producer(server, "a")
    new.send(numbers(2), ("a", 2, 1))
    assert new.acked() == {"a": 2}
    assert producer.acked() == {"a": 1}


def test_joined_frames_that_cannot_be_written_are_rejected_one_by_one(
    server: Server, producer: Producer
) -> None:
    server.store.remove("a")
    server.store.create(spec(NUMBERS, name="a", retention={"bytes": "512KB"}))  # segments of 64 KB
    producer.send(numbers(1, 2), ("a", 1, 1), ("b", 1, 1))
    producer.received()
    undo = limited_files(66_000)
    try:
        for sequence in (2, 3, 4):
            server.clock.advance(nanoseconds=1000)
            producer.send(numbers(*range(1364)), ("a", sequence, 1363), ("b", sequence, 1))
        messages = producer.received()
    finally:
        undo()
    rejects = [(each["stream"], each["sequence"], each["expected"]) for each in messages if "problem" in each]
    assert rejects == [("a", 2, 2), ("a", 3, 2), ("a", 4, 2)]
    assert messages[-1]["streams"]["b"][0] == 4
    producer.send(numbers(7), ("a", 2, 1))
    assert producer.acked() == {"a": 2}
    assert (server.values("a"), len(server.values("b"))) == ([1, 7], 4)


class SlowDisk(Inline):
    """A disk whose every sync advances the manual clock."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self._clock.advance(nanoseconds=100_000)
        super().run(work, done)


def test_rows_wait_nine_times_as_long_as_the_last_append_took(server: Server) -> None:
    timers = ManualTimers()
    now, later = timers.soon, timers.later
    store = server.start(delivery="sync", background=SlowDisk(server.clock), timers=timers)
    for name in "abc":
        store.create(spec(NUMBERS, name=name))
    producer = Producer(server, *"abc")
    producer.send(numbers(1, 1, 1), *[(name, 1, 1) for name in "abc"])
    while now:
        now.pop()()
    assert [server.values(name) for name in "abc"] == [[1]] * 3
    for number in (2, 3):
        producer.send(numbers(number, number), ("a", number, 1), ("b", number, 1))
    ((delay, rested),) = later
    # The append took two turns; the wait after the first was not over in the second.
    assert delay == pytest.approx(9 * 0.0003 - 0.0001)
    assert now == []
    # A frame in a message of its own is appended at once, together with those ahead of it.
    store.offer("p", "a", 4, numbers(4), 50)
    now.pop()()
    assert [server.values(name) for name in "ab"] == [[1, 2, 3, 4], [1]]
    server.clock.advance(seconds=delay)
    rested()
    now.pop()()
    assert server.values("b") == [1, 2, 3]
    # After a longer time nothing waits.
    server.clock.advance(seconds=1)
    producer.send(numbers(4), ("b", 4, 1))
    now.pop()()
    assert (server.values("b"), len(later)) == ([1, 2, 3, 4], 1)


def test_appending_yields_to_the_event_loop_and_continues_in_the_next_turn(server: Server) -> None:
    timers, disk = ManualTimers(), SlowDisk(server.clock)
    turns = timers.soon
    store = server.start(delivery="sync", timers=timers, background=disk)
    for name in "abcde":
        store.create(spec(NUMBERS, name=name))
    for name in "abcde":
        store.offer("p", name, 1, numbers(1), 50)
    assert len(turns) == 1
    settled = []
    while turns:
        turns.pop()()
        settled.append([name for name in "abcde" if store.last_sequence("p", name)])
        if len(settled) == 1:
            # This frame arrives meanwhile, and is appended together with the pending one.
            store.offer("p", "e", 2, numbers(2), 50)
    assert settled == [list("ab"), list("abcd"), list("abcde")]
    assert server.values("e") == [1, 2]
