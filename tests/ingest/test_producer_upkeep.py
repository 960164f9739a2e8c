"""Producers are removed on request and when they are not used; their numbers are never given again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.services.stream_store import EVENTS, NUMBERS, Server, events, numbers, spec

from mavstream_server.core.errors import Conflict, NotFound, SequenceGap, TooMany
from mavstream_server.ingest.connected_producers import ConnectedProducers
from mavstream_server.ingest.producer_session import ProducerSession
from mavstream_server.ingest.producer_upkeep import ProducerUpkeep
from mavstream_server.ingest.traffic import Traffic
from mavstream_server.testing import ManualClock

DAY = 86_400


@pytest.fixture
def server(tmp_path: Path, clock: ManualClock) -> Iterator[Server]:
    with Server(tmp_path, clock) as made:
        store = made.start(max_producers=2)
        store.create(spec(NUMBERS))
        store.create(spec(EVENTS))
        yield made


def upkeep_of(server: Server, connected: ConnectedProducers | None = None) -> ProducerUpkeep:
    registry = server.catalog.producers
    connected = connected or ConnectedProducers(registry)
    return ProducerUpkeep(server.store, registry, connected, server.clock, 30 * DAY * 1_000_000)


def offer(server: Server, producer: str, sequence: int, value: int = 1) -> None:
    server.store.offer(producer, "numbers", sequence, numbers(value), 8)
    server.store.flush()


def test_a_removed_producer_starts_anew_under_another_number(server: Server) -> None:
    offer(server, "a", 1)
    offer(server, "b", 1)
    with pytest.raises(TooMany, match="producer 'c' is new"):
        offer(server, "c", 1)
    upkeep_of(server).remove("b")
    assert server.store.info("numbers").producers == {"a": 1}
    offer(server, "c", 1)
    upkeep_of(server).remove("a")
    server.again()
    with pytest.raises(SequenceGap):
        offer(server, "a", 2)
    offer(server, "a", 1, 7)
    assert server.catalog.producers.names == {"c": 3, "a": 4}
    assert server.values("numbers") == [1, 1, 1, 7], "its rows stay"
    with pytest.raises(NotFound, match="no producer 'b'"):
        upkeep_of(server).remove("b")


def test_a_number_is_not_given_again_after_a_restart(server: Server) -> None:
    offer(server, "a", 1)
    upkeep_of(server).remove("a")
    server.again()
    offer(server, "b", 1)
    assert server.catalog.producers.names == {"b": 2}


def test_a_removed_producer_no_longer_holds_the_watermark(server: Server) -> None:
    store = server.store
    for producer, time in (("a", 5_000_000), ("b", 9_000_000)):
        store.offer(producer, "events", 1, events(time), 8)
    store.flush()
    assert store.info("events").watermark == "1970-01-01T00:00:05.000000Z"
    upkeep_of(server).remove("a")
    assert store.info("events").watermark == "1970-01-01T00:00:09.000000Z"
    store = server.again()
    assert store.info("events").watermark == "1970-01-01T00:00:09.000000Z"


def test_a_producer_with_rows_in_flight_is_not_removed(server: Server) -> None:
    server.store.offer("a", "numbers", 1, numbers(1), 8)
    with pytest.raises(Conflict, match="rows in flight"):
        upkeep_of(server).remove("a")
    server.store.flush()
    upkeep_of(server).remove("a")


def test_unused_producers_expire_and_connected_ones_do_not(server: Server) -> None:
    connected = ConnectedProducers(server.catalog.producers)
    session = ProducerSession(server.store, Traffic(), "process", 1 << 20, lambda: None, connected.connected)
    session.received('{"type": "hello", "producer": "a"}')
    upkeep = upkeep_of(server, connected)
    offer(server, "a", 1)
    offer(server, "b", 1)
    with pytest.raises(Conflict, match="is connected"):
        upkeep.remove("a")
    for _ in range(31):
        upkeep.run()
        server.clock.advance(seconds=DAY)
    upkeep.run()
    assert list(server.catalog.producers.names) == ["a"]
    assert connected.disconnected(session)
    upkeep.touch("a")
    upkeep.expire()
    server.clock.advance(seconds=29 * DAY)
    upkeep.run()
    (info,) = upkeep.infos(["a"])
    assert (info.connected, info.owner, info.sequences) == (False, None, {"numbers": 1})
    server.clock.advance(seconds=2 * DAY)
    upkeep.run()
    assert not server.catalog.producers.names


def test_producers_of_an_earlier_release_count_as_used_now(server: Server) -> None:
    offer(server, "a", 1)
    server.catalog._database.run("UPDATE producers SET used_us = 0")
    server.again()
    upkeep_of(server).run()
    assert list(server.catalog.producers.names) == ["a"]
