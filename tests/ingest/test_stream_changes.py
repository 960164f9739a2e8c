"""Streams get fields and other limits while producers send: nothing is lost, old producers go on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.services.stream_store import NUMBERS, Producer, Server, limited_files, numbers, spec

from mavstream_protocol.errors import InvalidObject
from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.tuples import decode_columns, encode_message
from mavstream_protocol.wire.envelope import seal
from mavstream_protocol.wire.stream_change import StreamChange
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.errors import Conflict, NotFound, StorageFull
from mavstream_server.core.storage import failpoints
from mavstream_server.testing import ManualClock

WET = Field("wet", FieldType.BOOL, nullable=True)
ROOM = Field("room", FieldType.STRING, nullable=True)
OLD = Schema((Field("n", FieldType.INT),))


@pytest.fixture
def server(tmp_path: Path, clock: ManualClock) -> Iterator[Server]:
    with Server(tmp_path, clock) as made:
        made.start().create(spec(NUMBERS))
        yield made


def adding(*fields: Field) -> StreamChange:
    return StreamChange.model_validate(
        {"add_fields": [{"name": one.name, "type": one.type, "nullable": True} for one in fields]}
    )


def rows(server: Server, stream: str = "numbers") -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for frame in server.frames(stream):
        fields = server.store.spec(stream).schema()
        columns = [frame.column(field.name).to_list(field.type) for field in fields]
        found += zip(*columns, strict=True)
    return found


def single(stream: str, sequence: int, batch: Any) -> bytes:
    return seal(json.dumps({"stream": stream, "sequence": sequence}).encode(), encode_message(batch))


def test_a_producer_goes_on_with_the_schema_that_it_knows(server: Server) -> None:
    producer, store = Producer(server, "numbers"), server.store
    producer.session.received(single("numbers", 1, numbers(1, 2)))
    assert producer.acked() == {"numbers": 1}
    assert store.change("numbers", adding(WET, ROOM)).changed == ("fields/wet", "fields/room")
    producer.session.received(single("numbers", 2, numbers(3)))
    producer.session.received(
        json.dumps({"type": "data", "stream": "numbers", "sequence": 3, "rows": [{"n": 4}]})
    )
    producer.session.received(
        json.dumps({"type": "data", "stream": "numbers", "sequence": 4, "columns": {"n": [5], "wet": [True]}})
    )
    wide = decode_columns(store.spec("numbers").schema(), {"n": [6], "wet": [False], "room": ["attic"]})
    producer.session.received(single("numbers", 5, wide))
    assert producer.acked() == {"numbers": 5}
    assert rows(server) == [
        (1, None, None),
        (2, None, None),
        (3, None, None),
        (4, None, None),
        (5, True, None),
        (6, False, "attic"),
    ]


def test_messages_with_several_streams_go_on_when_one_of_them_changes(server: Server) -> None:
    store = server.store
    for name in ("a", "b"):
        store.create(spec(NUMBERS, name=name))
    producer = Producer(server, "a", "b")
    producer.send(numbers(1, 2), ("a", 1, 1), ("b", 1, 1))
    assert producer.acked() == {"a": 1, "b": 1}
    for changed, first in (("b", "a"), ("a", "a")):
        store.change(changed, adding(ROOM))
        sequence = 2 if changed == "b" else 3
        other = "b" if first == "a" else "a"
        producer.send(numbers(sequence, 10 * sequence), (first, sequence, 1), (other, sequence, 1))
        assert producer.acked() == {"a": sequence, "b": sequence}
    assert rows(server, "a") == [(1, None), (2, None), (3, None)]
    assert rows(server, "b") == [(2, None), (20, None), (30, None)]


def test_invalid_rows_of_an_old_producer_are_still_rejected_by_number(server: Server) -> None:
    stamped = {"name": "stamped", "fields": [{"name": "f", "type": "float"}]}
    server.store.create(spec(stamped))
    producer = Producer(server, "stamped")
    server.store.change("stamped", adding(ROOM))
    batch = decode_columns(Schema((Field("f", FieldType.FLOAT),)), {"f": [1.0, 2.0]})
    broken = pa.record_batch([pa.array([1.0, float("nan")])], schema=batch.schema)
    producer.send(broken, ("stamped", 1, 2))
    (reject,) = producer.received()
    assert (reject["type"], reject["sequence"]) == ("reject", 1)
    assert "f" in reject["problem"]["detail"]


def test_rows_that_are_queued_when_a_field_is_added_are_appended(server: Server) -> None:
    store = server.store
    store.offer("p", "numbers", 1, numbers(1), 8)
    store.change("numbers", adding(ROOM))
    assert rows(server) == [(1, None)]


def test_rows_that_wait_for_space_get_nulls(tmp_path: Path, clock: ManualClock) -> None:
    with Server(tmp_path, clock) as server:
        store = server.start(max_disk_bytes=1)
        store.create(spec(NUMBERS))
        settled: list[object] = []
        store.offer("p", "numbers", 1, numbers(1, 2), 16, done=settled.append)
        store.flush()
        assert not settled
        store.change("numbers", adding(ROOM))
        server.again()
        assert rows(server) == []
        unlimited = server.stop() or server.start(max_disk_bytes=None)
        unlimited.offer("p", "numbers", 1, numbers(1, 2), 16)
        unlimited.flush()
        assert rows(server) == [(1, None), (2, None)]


def test_a_change_survives_a_restart_and_is_told_once(server: Server) -> None:
    assert server.store.change("numbers", adding(WET)).changed == ("fields/wet",)
    assert server.store.change("numbers", adding(WET)).changed == ()
    store = server.again()
    assert store.spec("numbers").schema().names == ("n", "wet")
    assert store.change("numbers", adding(WET, ROOM)).changed == ("fields/room",)
    assert store.shapes()["numbers"].schema.names == ("n", "wet", "room")


def test_a_field_of_that_name_with_another_type_is_refused(server: Server) -> None:
    server.store.change("numbers", adding(WET))
    with pytest.raises(Conflict, match=r"has a field 'wet' \(bool, nullable\) already") as caught:
        server.store.change("numbers", adding(Field("Wet", FieldType.INT, nullable=True)))
    assert caught.value.code == "field_exists"
    with pytest.raises(NotFound, match="no stream 'none'"):
        server.store.change("none", adding(WET))


def test_a_complete_stream_gets_no_fields(server: Server) -> None:
    server.store.complete("numbers")
    server.store.flush()
    with pytest.raises(Conflict, match="was completed and takes no more rows") as caught:
        server.store.change("numbers", adding(WET))
    assert caught.value.code == "stream_complete"


def test_limits_change_and_go_away(server: Server) -> None:
    store = server.store
    change = StreamChange.model_validate({"retention": "2h", "quota": "1MB"})
    assert store.change("numbers", change).changed == ("retention", "quota")
    assert store.info("numbers").spec.quota == 1_000_000
    store = server.again()
    assert store.change("numbers", change).changed == ()
    assert store.change("numbers", StreamChange.model_validate({"quota": None})).changed == ("quota",)
    kept = store.info("numbers").spec
    assert (kept.quota, kept.retention is not None) == (None, True)
    store.offer("p", "numbers", 1, numbers(1), 8)
    store.flush()
    assert rows(server) == [(1,)]


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"max_ahead": "1h"}, "max_ahead", "needs_event_time"),
        ({"retention": {"bytes": "2MB"}, "quota": "1MB"}, "quota", "quota_below_retention"),
    ],
)
def test_limits_that_contradict_the_stream_are_refused(
    server: Server, change: dict[str, Any], pointer: str, code: str
) -> None:
    with pytest.raises(InvalidObject) as caught:
        server.store.change("numbers", StreamChange.model_validate(change))
    assert [(item.pointer, item.code) for item in caught.value.items] == [(pointer, code)]


def test_more_fields_than_a_stream_can_have_are_refused(server: Server) -> None:
    many = [Field(f"f{n}", FieldType.INT, nullable=True) for n in range(256)]
    with pytest.raises(InvalidObject) as caught:
        server.store.change("numbers", adding(*many))
    assert [item.pointer for item in caught.value.items] == ["add_fields"]


def test_a_disk_that_fails_before_the_log_changes_leaves_everything_as_it_was(server: Server) -> None:
    failpoints.arm_from_environment("api", {"MAVSTREAM_FAILPOINTS": "api:log.describe=enospc"})
    try:
        with pytest.raises(StorageFull, match="stream 'numbers' could not be written"):
            server.store.change("numbers", adding(WET))
    finally:
        failpoints.arm_from_environment("api", {})
    store = server.store
    store.offer("p", "numbers", 1, numbers(1), 8)
    store.flush()
    assert (store.spec("numbers").schema(), store.failures, rows(server)) == (OLD, {}, [(1,)])
    store = server.again()
    assert store.spec("numbers").schema() == OLD
    assert store.change("numbers", adding(WET)).changed == ("fields/wet",)


def test_a_field_is_there_once_a_full_disk_has_space_again(server: Server, clock: ManualClock) -> None:
    store = server.store
    undo = limited_files(300_000)  # less than a segment, more than the catalog
    try:
        with pytest.raises(StorageFull):
            store.change("numbers", adding(WET))
        assert list(store.failures) == ["numbers"]
    finally:
        undo()
    clock.advance(seconds=60)
    store.maintain()
    assert (store.failures, store.change("numbers", adding(WET)).changed) == ({}, ())
    store.offer("p", "numbers", 1, numbers(1), 8)
    store.flush()
    assert rows(server) == [(1, None)]


def test_a_stop_between_catalog_and_log_is_completed_by_the_next_start(server: Server) -> None:
    store = server.store
    server.catalog.change_stream(
        spec(NUMBERS, fields=[*NUMBERS["fields"], {"name": "wet", "type": "bool", "nullable": True}])
    )
    store.offer("p", "numbers", 1, numbers(1), 8)
    store = server.again()
    assert store.spec("numbers").schema().names == ("n", "wet")
    assert rows(server) == [(1, None)]


def test_a_catalog_that_power_loss_has_set_back_gets_the_fields_of_the_log(
    server: Server, tmp_path: Path
) -> None:
    server.store.change("numbers", adding(WET))
    wide = decode_columns(server.store.spec("numbers").schema(), {"n": [1], "wet": [True]})
    server.store.offer("p", "numbers", 1, wide, 8)
    server.stop()
    catalog = Catalog(tmp_path / "catalog.sqlite")
    catalog.change_stream(spec(NUMBERS))
    catalog.close()
    store = server.start()
    assert store.spec("numbers").schema().names == ("n", "wet")
    assert rows(server) == [(1, True)]
