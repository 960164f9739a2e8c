"""Committed changes of the catalog survive SIGKILL and restarts."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mavstream_protocol.classes import QueryClass
from mavstream_protocol.optimizer import OptimizerSettings
from mavstream_protocol.queries import QuerySpec
from mavstream_protocol.scheduling import SchedulerSettings
from mavstream_protocol.streams import StreamSpec
from mavstream_protocol.wire.resources import DesiredState
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.catalog.runs import RunRecord
from mavstream_server.core.errors import Conflict, NotFound, Refused, TooMany, WrongVersion

PLAN = {"root": "in", "nodes": {"in": {"op": "source", "stream": "readings"}}}


def stream(name: str) -> StreamSpec:
    return StreamSpec.model_validate(
        {
            "name": name,
            "fields": [{"name": "at", "type": "timestamp"}, {"name": "n", "type": "int"}],
            "event_time": "at",
            "lateness": "2s",
            "retention": {"time": "1h", "bytes": "1GB"},
            "quota": "2GB",
        }
    )


def query(name: str, class_: str = "default") -> QuerySpec:
    return QuerySpec.model_validate(
        {"name": name, "plan": PLAN, "class": class_, "from": "earliest", "qos": {"latency": {"p95": "50ms"}}}
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.sqlite"


@pytest.fixture
def catalog(path: Path) -> Iterator[Catalog]:
    catalog = Catalog(path)
    yield catalog
    catalog.close()


def test_streams_are_read_as_they_were_added(path: Path) -> None:
    for name in ("b", "a", "c"):
        first = Catalog(path)
        first.add_stream(stream(name))
        first.close()
    catalog = Catalog(path)
    assert catalog.stream("b") == stream("b")
    assert [spec.name for spec in catalog.streams()] == ["a", "b", "c"]
    assert [spec.name for spec in catalog.streams(after="a", limit=1)] == ["b"]
    with pytest.raises(Conflict, match="stream 'a' exists already") as caught:
        catalog.add_stream(stream("a"))
    assert caught.value.code == "stream_exists"
    catalog.remove_stream("a")
    with pytest.raises(NotFound, match="no stream 'a'"):
        catalog.stream("a")
    with pytest.raises(NotFound, match="no stream 'a'"):
        catalog.remove_stream("a")
    catalog.close()


def test_a_change_of_a_class_may_require_a_version(catalog: Catalog) -> None:
    assert [record.spec.name for record in catalog.classes()] == ["default"]
    assert catalog.put_class(QueryClass(name="alarms", priority=6)) == 1
    assert catalog.put_class(QueryClass(name="alarms", priority=7), expected_version=1) == 2
    with pytest.raises(WrongVersion, match=r"class 'alarms' is at version 2, .* meant for version 1"):
        catalog.put_class(QueryClass(name="alarms", priority=8), expected_version=1)
    assert catalog.class_("alarms") == (QueryClass(name="alarms", priority=7), 2)
    with pytest.raises(NotFound, match=r"no class 'alarm': .* did you mean 'alarms'"):
        catalog.class_("alarm")


def test_a_class_keeps_its_latency_target_and_those_of_earlier_releases_have_none(path: Path) -> None:
    catalog = Catalog(path)
    catalog.put_class(QueryClass.model_validate({"name": "alarms", "latency": "20ms"}))
    catalog.close()
    with sqlite3.connect(path) as file:  # as an earlier release wrote it
        file.execute(
            "INSERT INTO classes VALUES (?, ?, ?)",
            ("old", '{"name":"old","priority":3,"description":"before"}', 4),
        )
    file.close()
    catalog = Catalog(path)
    assert catalog.class_("alarms").spec.latency == 20_000
    assert catalog.class_("old") == (QueryClass(name="old", priority=3, description="before"), 4)
    catalog.close()


def test_a_query_is_stored_with_its_states_and_versions(path: Path) -> None:
    catalog = Catalog(path)
    record = catalog.add_query("q1", query("hot"), 17)
    assert catalog.query("q1") == record
    assert (record.desired, record.final_state, record.epoch, record.version) == ("running", None, 0, 1)
    assert [catalog.next_epoch("q1"), catalog.next_epoch("q1")] == [1, 2]
    assert catalog.query("q1").version == 1  # a new epoch is not a change by a client
    assert catalog.set_desired("q1", DesiredState.PAUSED, 1).version == 2
    with pytest.raises(WrongVersion):
        catalog.set_desired("q1", DesiredState.RUNNING, 1)
    assert catalog.set_spec("q1", changed(catalog, "alarms")).spec.class_ == "alarms"
    catalog.set_final("q1", "failed", "it overflowed")
    expected = catalog.query("q1")
    catalog.close()
    catalog = Catalog(path)
    assert catalog.query("q1") == expected
    assert expected.spec == query("hot", "alarms")
    assert expected[2:] == (DesiredState.PAUSED, "failed", "it overflowed", 2, 4, 17, 0)
    catalog.remove_query("q1")
    for call in (catalog.query, catalog.remove_query, catalog.next_epoch):
        with pytest.raises(NotFound, match="no query 'q1'"):
            call("q1")
    catalog.close()


def test_queries_are_listed_in_pages_and_by_state(catalog: Catalog) -> None:
    for n in range(5):
        catalog.add_query(f"q{n}", query(f"n{n}"), n)
    with pytest.raises(Conflict, match="query 'q0' exists already"):
        catalog.add_query("q0", query("again"), 0)
    catalog.set_desired("q1", DesiredState.PAUSED)
    catalog.set_final("q2", "finished")
    assert [record.id for record in catalog.queries(limit=2)] == ["q0", "q1"]
    assert [record.id for record in catalog.queries(after="q1", limit=2)] == ["q2", "q3"]
    assert [record.id for record in catalog.queries(state="running")] == ["q0", "q3", "q4"]
    assert [record.id for record in catalog.queries(state="paused")] == ["q1"]
    assert [record.id for record in catalog.queries(state="finished")] == ["q2"]
    assert catalog.count_queries() == 5


def test_producers_keep_their_ids_and_sequences_never_decrease(path: Path) -> None:
    catalog = Catalog(path, max_producers=2)
    catalog.add_stream(stream("s"))
    assert [catalog.producers.register(name) for name in ("a", "b", "a")] == [1, 2, 1]
    with pytest.raises(TooMany, match="producer 'c' is new and the limit of 2 producers is reached"):
        catalog.producers.register("c")
    catalog.save_sequences("s", {1: 5, 2: 0})
    catalog.save_sequences("s", {1: 3, 2: 1})
    catalog.close()
    catalog = Catalog(path)
    assert catalog.sequences("s") == {1: 5, 2: 1}
    assert (catalog.producers.register("b"), catalog.producers.name(2), catalog.producers.number("x")) == (
        2,
        "b",
        None,
    )
    catalog.remove_stream("s")
    assert catalog.sequences("s") == {}
    catalog.close()


def test_the_settings_of_the_optimizer_are_stored(path: Path) -> None:
    catalog = Catalog(path)
    assert catalog.optimizer() == OptimizerSettings()
    chosen = OptimizerSettings.model_validate(
        {"enabled": False, "period": "500ms", "rules": {"rank": False}, "pace": {"gain": "5%"}}
    )
    catalog.set_optimizer(chosen)
    catalog.close()
    catalog = Catalog(path)
    assert catalog.optimizer() == chosen
    catalog.close()


def test_the_last_scheduler_settings_are_stored(path: Path) -> None:
    catalog = Catalog(path)
    assert catalog.scheduler() is None
    catalog.set_scheduler(SchedulerSettings(policy="rr", options={"quantum": 3}))
    catalog.set_scheduler(SchedulerSettings(policy="wrr", options={"quantum": 4}))
    catalog.close()
    catalog = Catalog(path)
    assert catalog.scheduler() == SchedulerSettings(policy="wrr", options={"quantum": 4})
    catalog.close()


def test_an_idempotency_key_stands_for_one_request(catalog: Catalog) -> None:
    assert catalog.idempotent("k", "POST /v1/queries") is None
    catalog.remember("k", "POST /v1/queries", "f1", '{"id": "q1"}')
    assert catalog.idempotent("k", "POST /v1/queries", "f1") == '{"id": "q1"}'
    assert catalog.idempotent("k", "POST /v1/streams", "f1") is None
    with pytest.raises(Conflict, match="key 'k' was used for another request to POST /v1/queries"):
        catalog.idempotent("k", "POST /v1/queries", "f2")


def changed(catalog: Catalog, class_: str) -> QuerySpec:
    """Return the specification of q1 in another class."""
    return catalog.query("q1").spec.model_copy(update={"class_": class_})


def test_a_failed_transaction_is_rolled_back(catalog: Catalog) -> None:
    catalog.add_query("q1", query("a"), 1)

    def fail() -> None:
        with catalog.transaction():
            catalog.set_spec("q1", changed(catalog, "other"))
            catalog.add_query("q2", query("b"), 1)
            catalog.remember("k", "queries", "f", "{}")
            catalog.add_query("q2", query("b"), 1)

    with pytest.raises(Conflict):
        fail()
    assert [record.id for record in catalog.queries()] == ["q1"]
    assert catalog.query("q1").spec.class_ == "default"
    assert catalog.idempotent("k", "queries") is None
    catalog.add_query("q2", query("b"), 1)  # and the next transaction is committed


def test_a_file_of_a_later_release_is_refused_and_not_changed(path: Path) -> None:
    Catalog(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(Refused, match="expected version 8 or earlier, got 99") as caught:
        Catalog(path)
    assert caught.value.code == "newer_catalog"
    assert path.read_bytes() == before


def test_starts_are_stored_with_their_queries(path: Path) -> None:
    catalog = Catalog(path)
    catalog.add_stream(stream("readings"))
    for id_ in ("q1", "q2", "q3"):
        catalog.add_query(id_, query(id_), 0)
    catalog.starts.note_begun("q1")
    catalog.starts.resume("q1", {"readings": 7})
    catalog.starts.resume("q2", {"readings": 8})
    catalog.starts.note_begun("q2")
    catalog.close()
    again = Catalog(path)
    assert again.starts.of("q1") == (True, {"readings": 7})
    assert again.starts.of("q2") == (True, {"readings": 8})
    assert again.starts.of("q3") == (False, None)
    again.remove_query("q2")
    assert again.starts.of("q2") == (False, None)
    again.close()


def test_queries_of_earlier_releases_with_an_epoch_have_begun(path: Path) -> None:
    catalog = Catalog(path)
    catalog.add_stream(stream("readings"))
    for id_ in ("old", "new"):
        catalog.add_query(id_, query(id_), 0)
    catalog.next_epoch("old")
    catalog.close()
    with sqlite3.connect(path) as file:
        file.execute("DROP TABLE starts")
        file.execute("DROP TABLE seams")
        file.execute("ALTER TABLE seen_fields DROP COLUMN names")
        file.execute("PRAGMA user_version = 6")
    file.close()
    again = Catalog(path)
    assert (again.starts.of("old").begun, again.starts.of("new").begun) == (True, False)
    again.close()


def test_duplicate_names_of_earlier_releases_get_a_suffix(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = Catalog(path)
    catalog.add_stream(stream("readings"))
    names = ["hot", "hot_2", "hot", "readings", "rooms", "n" * 64, "n" * 64, "hot"]
    with sqlite3.connect(path) as file:  # as a release before version 3 wrote it
        file.execute("DROP TABLE replacements")
        file.execute("DROP TABLE seen_fields")
        file.execute("DROP TABLE runs")
        file.execute("DROP TABLE starts")
        file.execute("DROP TABLE seams")
        file.execute("DROP INDEX queries_by_name")
        for number, name in enumerate(names):
            catalog.add_query(f"q{number}", query(name), number)
        file.execute("ALTER TABLE queries DROP COLUMN revision")
        file.execute("INSERT INTO queries VALUES ('bad', '{', 'running', NULL, NULL, 0, 1, 9)")
        file.execute("PRAGMA user_version = 2")
    file.close()
    catalog.close()
    Catalog(path, tables=["rooms"]).close()
    with sqlite3.connect(path) as file:
        file.execute("DELETE FROM queries WHERE id = 'bad'")
    file.close()
    catalog = Catalog(path)
    assert [(record.id, record.spec.name) for record in catalog.queries()] == [
        ("q0", "hot"),
        ("q1", "hot_2"),
        ("q2", "hot_3"),
        ("q3", "readings_2"),
        ("q4", "rooms_2"),
        ("q5", "n" * 64),
        ("q6", "n" * 62 + "_2"),
        ("q7", "hot_4"),
    ]
    assert catalog.query("q2").spec == query("hot_3")
    renamed = [record for record in caplog.records if record.message.startswith("query renamed")]
    assert [vars(record)["query"] for record in renamed] == ["q2", "q3", "q4", "q6", "q7"]
    catalog.close()


def test_a_foreign_file_is_refused(path: Path) -> None:
    path.write_bytes(b"something else entirely" * 100)
    with pytest.raises(Refused, match="is not an intact SQLite file"):
        Catalog(path)
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(Refused, match="belongs to another program"):
        Catalog(path)


def test_an_empty_file_is_a_new_catalog_only_where_there_is_no_data(path: Path) -> None:
    path.touch()
    (path.parent / "streams").mkdir()
    Catalog(path).close()
    path.write_bytes(b"")
    (path.parent / "streams" / "readings").mkdir()
    with pytest.raises(Refused, match="it is empty"):
        Catalog(path)
    assert path.read_bytes() == b""


def test_a_garbled_specification_is_refused_by_name(path: Path) -> None:
    Catalog(path).close()
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO streams VALUES ('readings', '{\"name\": \"rea\u0001')")
    connection.commit()
    connection.close()
    with pytest.raises(Refused, match=r"catalog: expected a StreamSpec, got .* restore it from a backup"):
        Catalog(path).streams()


def test_registering_three_thousand_queries_is_quick(catalog: Catalog) -> None:
    def add(numbers: range) -> float:
        start = time.perf_counter()
        for n in numbers:
            catalog.add_query(f"q{n:05d}", query(f"q{n}"), n)
            catalog.next_epoch(f"q{n:05d}")
        return time.perf_counter() - start

    first, last = add(range(100)), [add(range(n, n + 100)) for n in range(100, 3000, 100)][-3:]
    assert min(last) < 3 * first + 0.05
    assert len(catalog.queries()) == 3000


def test_every_commit_is_synced_if_asked_for(path: Path) -> None:
    catalog = Catalog(path, sync="FULL")
    catalog.add_query("q1", query("a"), 1)
    catalog.close()


KILLED = """
import sys
from pathlib import Path
from mavstream_protocol.queries import QuerySpec
from mavstream_server.catalog.catalog import Catalog

catalog = Catalog(Path(sys.argv[1]))
spec = QuerySpec.model_validate_json(sys.argv[2])
n = catalog.count_queries()
while True:
    with catalog.transaction():
        catalog.add_query(f"q{n:06d}", spec.model_copy(update={"name": f"q{n}"}), n)
        catalog.remember(f"k{n}", "queries", "f", str(n))
    n += 1
    sys.stdout.write(f"{n}\\n")
    sys.stdout.flush()
"""


def test_a_killed_server_loses_nothing_that_it_acknowledged(path: Path) -> None:
    for _ in range(3):
        arguments = [sys.executable, "-c", KILLED, str(path), query("q").model_dump_json(by_alias=True)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(50):
                reported = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            rest = process.stdout.read().split("\n")
        reported = max([reported, *(int(line) for line in rest[:-1])])
        catalog = Catalog(path)
        count = catalog.count_queries()
        assert count >= reported
        assert [record.id for record in catalog.queries()] == [f"q{n:06d}" for n in range(count)]
        assert catalog.idempotent(f"k{count - 1}", "queries") == str(count - 1)
        assert catalog.idempotent(f"k{count}", "queries") is None
        catalog.close()


def test_a_run_whose_last_batch_is_not_in_the_log_goes_on_behind_the_one_before(tmp_path: Path) -> None:
    first, second = (RunRecord(batch=n, end=n * 10, state={"at": n}, needs={"s": n}) for n in (1, 2))
    with closing(Catalog(tmp_path / "catalog.db")) as catalog:
        assert catalog.runs.of("q") is None
        catalog.runs.put("q", first, None)
        catalog.runs.put("q", second, first)
    with closing(Catalog(tmp_path / "catalog.db")) as catalog:
        stored = catalog.runs.of("q")
        assert stored is not None
        assert stored.published(20) == second
        assert stored.published(10) == first
        catalog.runs.remove("q")
        assert catalog.runs.of("q") is None
