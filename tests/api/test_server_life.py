"""The lifecycle of a server: crashes of its processes, stops, and refused starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.servers.readings import columns, create, pull, register, rows
from tests.support.servers.running_server import (
    PATIENCE,
    RawProducer,
    RunningServer,
    closed_with,
    eventually,
    running_server,
)
from websockets.exceptions import ConnectionClosed


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path / "data") as running:
        yield running


class Feeding(threading.Thread):
    """Feeds frames of ten rows until its connection breaks, and knows what was acked."""

    def __init__(self, server: RunningServer) -> None:
        super().__init__(daemon=True)
        self.producer = RawProducer(server, "p", "readings")
        self.acked = 0
        self.sent = 0

    def run(self) -> None:
        try:
            while True:
                while self.sent - self.acked < 50:
                    self.sent += 1
                    self.producer.columns("readings", self.sent, columns(self.sent * 10 - 10, self.sent * 10))
                self.acked = self.producer.receive()["sequence"]
        except (ConnectionClosed, OSError):
            pass


def test_acked_rows_survive_a_killed_server(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_server(data) as server:
        create(server)
        server.http.put("/v1/classes/alarms", json={"name": "alarms", "priority": 6})
        server.http.put("/v1/scheduler", json={"policy": "wrr", "options": {"tuples": 99}})
        query = register(server, **{"class": "alarms"})
        engine = server.engine_pid
        feeding = Feeding(server)
        feeding.start()
        eventually(lambda: feeding.acked > 100, "acks under load")
        server.kill()
        feeding.join(PATIENCE)
        eventually(lambda: not Path(f"/proc/{engine}").exists(), "the engine to go with its server")
    with running_server(data) as server:
        assert server.http.get("/v1/classes/alarms").json()["priority"] == 6
        chosen = {"policy": "wrr", "options": {"tuples": 99}, "sources": None}
        assert server.http.get("/v1/scheduler").json() == chosen
        eventually(lambda: server.http.get(f"/v1/queries/{query}").json()["state"] == "running", "the query")
        assert server.http.get(f"/v1/queries/{query}").json()["epoch"] == 1
        with RawProducer(server, "p", "readings") as producer:
            last = producer.welcome["streams"]["readings"]["last_sequence"]
            assert feeding.acked <= last <= feeding.sent
            assert server.http.get("/v1/streams/readings").json()["position"] == 10 * last
            # The last frame again, as a producer does that did not receive its ack.
            for sequence in range(last, last + 10):
                producer.columns("readings", sequence, columns(sequence * 10 - 10, sequence * 10))
            producer.acked("readings", last + 9)
        everything = register(server, name="everything", **{"from": "earliest"})
        count = 10 * (last + 9)
        assert [each["n"] for each in pull(server, everything, count)] == list(range(count))


def test_the_service_continues_when_the_engine_dies(server: RunningServer) -> None:
    create(server)
    query = register(server)
    engine = server.engine_pid
    assert engine is not None
    with (
        server.websocket(f"/v1/queries/{query}/results") as subscriber,
        RawProducer(server, "p", "readings") as producer,
    ):
        producer.rows("readings", 1, rows(0, 5))
        producer.acked("readings", 1)
        received = [json.loads(subscriber.recv(timeout=PATIENCE)) for _ in range(2)]
        assert [each["type"] for each in received] == ["opened", "rows"]
        os.kill(engine, signal.SIGKILL)
        unready = eventually(lambda: _unready(server), "the server to say that it is not ready")
        assert (unready.status_code, unready.json()["code"]) == (503, "engine_starting")
        producer.rows("readings", 2, rows(5, 10))
        producer.acked("readings", 2)
        eventually(lambda: server.ready, "the server to be ready again")
        again = json.loads(subscriber.recv(timeout=PATIENCE))
        assert (again["type"], again["offset"], again["epoch"]) == ("rows", 5, 1)
        assert again["rows"] == rows(5, 10)
    assert server.engine_pid != engine
    assert server.http.get("/v1/stats").json()["engine_restarts"] == 1
    assert "mavstream_engine_restarts_total 1.0" in server.http.get("/metrics").text


def test_without_checkpoints_a_new_engine_begins_a_new_epoch(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", env={"MAVSTREAM_CHECKPOINT_INTERVAL": "off"}) as server:
        create(server)
        query = register(server)
        engine = server.engine_pid
        assert engine is not None
        with server.websocket(f"/v1/queries/{query}/results") as subscriber:
            assert json.loads(subscriber.recv(timeout=PATIENCE))["type"] == "opened"
            os.kill(engine, signal.SIGKILL)
            gap = json.loads(subscriber.recv(timeout=PATIENCE))
            assert (gap["type"], gap["reason"], gap["epoch"]) == ("gap", "restart", 2)
        assert not (tmp_path / "data" / "checkpoints").exists()


def test_a_hanging_engine_is_restarted(tmp_path: Path) -> None:
    with running_server(tmp_path / "data", env={"MAVSTREAM_ENGINE_TIMEOUT": "1s"}) as server:
        create(server)
        query = register(server)
        engine = server.engine_pid
        assert engine is not None
        with server.websocket(f"/v1/queries/{query}/results") as subscriber:
            assert json.loads(subscriber.recv(timeout=PATIENCE))["type"] == "opened"
            os.kill(engine, signal.SIGSTOP)
            server.http.post("/v1/streams/readings/tuples", json=rows(0, 5))
            assert json.loads(subscriber.recv(timeout=PATIENCE))["rows"] == rows(0, 5)
        assert not Path(f"/proc/{engine}").exists()


def _unready(server: RunningServer) -> httpx.Response | None:
    answer = server.http.get("/readyz")
    return None if answer.status_code == 200 else answer


def test_a_stop_is_graceful_and_logged(server: RunningServer) -> None:
    create(server)
    query = register(server)
    with server.websocket(f"/v1/queries/{query}/results") as subscriber, RawProducer(server, "p") as producer:
        subscriber.recv(timeout=PATIENCE)
        producer.rows("readings", 1, rows(0, 3))
        producer.acked("readings", 1)
        engine = server.engine_pid
        server.process.send_signal(signal.SIGTERM)
        assert closed_with(producer.socket)[0] == 1001
        assert closed_with(subscriber)[0] == 1001
        assert server.process.wait(PATIENCE) == 0
    assert not Path(f"/proc/{engine}").exists()
    assert [event["event"] for event in server.events()][-1] == "stopped"


def refused(*arguments: str) -> str:
    """Start a server that cannot run and return its output."""
    ended = subprocess.run(
        [sys.executable, "-m", "mavstream_server.commands", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAVSTREAM_")},
    )
    assert ended.returncode == 2, ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
    return ended.stderr


def test_a_server_without_tokens_refuses_to_listen_on_other_addresses(tmp_path: Path) -> None:
    printed = refused("--data", str(tmp_path), "--host", "0.0.0.0", "--port", "0")
    assert "no token is configured" in printed


def test_two_servers_do_not_share_a_directory_or_a_port(server: RunningServer, tmp_path: Path) -> None:
    printed = refused("--data", str(server.data), "--port", "0")
    assert f"in use by another server (process {server.pid})" in printed
    port = server.url.rpartition(":")[2]
    printed = refused("--data", str(tmp_path / "other"), "--port", port)
    assert f"cannot listen on 127.0.0.1 port {port}" in printed


def test_invalid_settings_are_reported_in_one_line(tmp_path: Path) -> None:
    assert "there is no policy 'best'" in refused("--data", str(tmp_path), "--policy", "best")
    assert "--log: expected json or text" in refused("--data", str(tmp_path), "--log", "xml")
