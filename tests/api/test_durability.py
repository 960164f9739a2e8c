"""What a server shows of checkpoints, delivery guarantees and consumer lag, and the example alert rules."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.commands.in_process import command
from tests.support.documents import ROOT
from tests.support.servers.readings import create, plan, pull, register, rows
from tests.support.servers.running_server import RunningServer, eventually, running_server

INTERVAL = ("--checkpoint-interval", "100ms")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("data"), *INTERVAL, "--delivery", "sync") as server:
        yield server


@pytest.fixture
def server(running: RunningServer) -> Iterator[RunningServer]:
    """A server without streams and queries."""
    yield running
    running.clear()


def info(server: RunningServer, query: str) -> dict[str, Any]:
    found: dict[str, Any] = server.http.get(f"/v1/queries/{query}").json()
    return found


def logged(server: RunningServer, event: str) -> list[dict[str, Any]]:
    """Return the log lines of an event."""
    return [line for line in server.events() if line["event"] == event]


def value(text: str, name: str, **labels: str) -> float | None:
    """Return the value of a sample in the metrics, None if there is none."""
    shown = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    found = re.search(rf"^{name}{{{re.escape(shown)}}} (\S+)$", text, re.MULTILINE)
    return None if found is None else float(found[1])


def test_a_query_shows_its_last_checkpoint_and_its_guarantee(server: RunningServer) -> None:
    create(server)
    before = datetime.now(UTC)
    query = register(server)
    server.http.post("/v1/streams/readings/tuples", json=rows(0, 7))
    pull(server, query, 7)
    found = info(server, query)
    assert found["delivery"] == {
        "guarantee": "exactly_once",
        "detail": "after a crash the query continues from its last checkpoint",
        "survives_power_loss": ["rows", "results", "checkpoints"],
    }
    checkpoint = found["checkpoint"]
    assert before <= datetime.fromisoformat(checkpoint["taken"]) <= datetime.now(UTC)
    assert 0 <= checkpoint["age_s"] <= (datetime.now(UTC) - before).total_seconds()
    assert checkpoint["bytes"] > 0
    assert checkpoint["duration_ms"] > 0
    assert (checkpoint["replayed_rows"], checkpoint["replaying"]) == (0, False)
    assert (checkpoint["failures"], checkpoint["error"]) == (0, None)
    assert server.http.get("/v1/queries").json()["items"][0]["delivery"] == found["delivery"]
    listed, shown = (
        command("--url", server.url, "query", *words).stdout for words in (["list"], ["show", query])
    )
    assert "exactly_once" in listed
    assert " s ago" in listed
    assert "rows, results, checkpoints" in shown


@pytest.mark.parametrize(
    ("change", "guarantee"),
    [({"state": "paused"}, "exactly_once"), ({"state": "stopped"}, None)],
    ids=lambda each: each["state"] if isinstance(each, dict) else "",
)
def test_a_guarantee_is_in_force_while_an_engine_has_the_query(
    server: RunningServer, change: dict[str, str], guarantee: str | None
) -> None:
    create(server)
    query = register(server)
    changed = server.http.patch(f"/v1/queries/{query}", json=change).json()
    assert changed["delivery"]["guarantee"] == guarantee
    assert (changed["checkpoint"] is None) is (guarantee is None)


def test_a_scheduled_query_has_no_guarantee_yet(server: RunningServer) -> None:
    create(server)
    delivery = info(server, register(server, start_at="2100-01-01T00:00:00Z"))["delivery"]
    assert delivery["guarantee"] is None
    assert "has not started" in delivery["detail"]


def test_a_checkpoint_that_cannot_be_written_is_reported(server: RunningServer, tmp_path: Path) -> None:
    create(server)
    query = register(server)
    folder = server.data / "checkpoints" / query
    eventually(lambda: len(list(folder.glob("*.checkpoint"))) == 2, "two checkpoints")
    kept = tmp_path / query
    folder.rename(kept)
    folder.write_bytes(b"")
    server.http.post("/v1/streams/readings/tuples", json=rows(0, 7))
    failed = eventually(lambda: (now := info(server, query))["checkpoint"]["error"] and now, "a failure")
    assert failed["delivery"]["guarantee"] == "exactly_once"
    assert failed["checkpoint"]["error"] in failed["delivery"]["detail"]
    assert failed["checkpoint"]["failures"] >= 1
    text = server.http.get("/metrics").text
    failures = value(text, "mavstream_checkpoint_failures_total", query=query, **{"class": "default"})
    assert failures is not None
    assert failures >= 1
    # A command that cannot be recorded leaves no usable checkpoint.
    paused = server.http.patch(f"/v1/queries/{query}", json={"state": "paused"}).json()
    assert paused["checkpoint"]["taken"] is None
    assert paused["delivery"]["guarantee"] == "at_most_once"
    assert paused["checkpoint"]["error"] in paused["delivery"]["detail"]
    folder.unlink(missing_ok=True)
    resumed = server.http.patch(f"/v1/queries/{query}", json={"state": "running"}).json()
    assert resumed["delivery"]["guarantee"] == "exactly_once"
    assert (resumed["checkpoint"]["error"], resumed["checkpoint"]["failures"] >= 2) == (None, True)


def test_a_recovery_is_logged_and_counted(server: RunningServer) -> None:
    create(server)
    query, other = register(server), register(server, plan=plan("n < 0"))
    server.http.post("/v1/streams/readings/tuples", json=rows(0, 7))
    pull(server, query, 7)
    pid = server.engine_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    restarted = "mavstream_engine_restarts_total 1.0"
    eventually(lambda: restarted in server.http.get("/metrics").text, "another engine")
    summary = eventually(lambda: logged(server, "queries recovered"), "the summary")[-1]
    each = {line["query"]: line for line in logged(server, "query recovered")}
    assert summary["queries"] == 2
    assert summary["replayed_rows"] == each[query]["replayed_rows"] + each[other]["replayed_rows"]
    assert 0 < each[query]["seconds"] <= summary["seconds"]
    found = eventually(lambda: (now := info(server, query))["checkpoint"] and now, "its metrics")
    assert found["checkpoint"]["replayed_rows"] == each[query]["replayed_rows"]
    assert (found["epoch"], found["checkpoint"]["replaying"]) == (1, False)
    assert found["checkpoint"]["bytes"] > 0


def test_every_metric_of_the_alert_rules_is_exported(server: RunningServer) -> None:
    create(server)
    query = register(server)
    rules = [
        rule
        for group in yaml.safe_load((ROOT / "docs" / "alerts.yml").read_text())["groups"]
        for rule in group["rules"]
    ]
    text = server.http.get("/metrics").text
    exported = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 6
    for rule in rules:
        assert rule.keys() >= {"alert", "expr", "labels", "annotations"}
        named = set(re.findall(r"mavstream_\w+", rule["expr"] + rule["annotations"]["description"]))
        assert named
        assert named <= exported, rule["alert"]
    labels = {"query": query, "class": "default"}
    for name in ("age_seconds", "bytes", "duration_seconds", "failures_total"):
        assert value(text, f"mavstream_checkpoint_{name}", **labels) is not None
    assert value(text, "mavstream_replayed_rows", **labels) == 0
    assert value(text, "mavstream_consumer_lag_rows", stream="readings", **labels) == 0
    assert value(text, "mavstream_consumer_lag_seconds", stream="readings", **labels) == 0


def test_after_power_loss_without_sync_queries_continue_under_a_new_epoch(tmp_path: Path) -> None:
    with running_server(tmp_path, *INTERVAL) as server:
        create(server)
        query = register(server)
        server.http.post("/v1/streams/readings/tuples", json=rows(0, 7))
        pull(server, query, 7)
        server.kill()
    (tmp_path / "boot").write_text("an earlier boot")
    with running_server(tmp_path, *INTERVAL) as server:
        server.http.post("/v1/streams/readings/tuples", json=rows(7, 9))
        assert [row["n"] for row in pull(server, query, 9)] == list(range(9))
        assert server.http.get(f"/v1/queries/{query}/results?after=6").json()["epoch"] == 2
    assert not (tmp_path / "boot").exists()
