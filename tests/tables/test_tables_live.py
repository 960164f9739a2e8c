"""Tables that are replaced while queries run, and processes that are killed meanwhile."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

from tests.support.servers.running_server import (
    PATIENCE,
    RawProducer,
    RunningServer,
    eventually,
    running_server,
)
from tests.support.servers.tables import READINGS, answers, append, join_plan, put, register
from websockets.exceptions import ConnectionClosed

VERSIONS = 30
PLAN = join_plan(compute={"n": "l.n", "version": "r.version"})


class Feeding(threading.Thread):
    """Feeds rows numbered from 1, a few per frame, until it is stopped or its connection breaks."""

    def __init__(self, server: RunningServer) -> None:
        super().__init__(daemon=True)
        self.producer = RawProducer(server, "p", "readings")
        self.stopping = threading.Event()
        self.sent = self.acked = 0

    def run(self) -> None:
        sequence = 0
        try:
            while not self.stopping.is_set():
                sequence += 1
                rows = [{"n": self.sent + number, "room": "attic"} for number in range(1, 1 + sequence % 5)]
                if not rows:
                    rows = [{"n": self.sent + 1, "room": "attic"}]
                self.sent += len(rows)
                self.producer.rows("readings", sequence, rows)
                self.producer.acked("readings", sequence)
                self.acked = self.sent
        except (ConnectionClosed, OSError):
            pass
        finally:
            self.producer.close()

    def stop(self) -> int:
        self.stopping.set()
        self.join(PATIENCE)
        return self.acked


def put_version(server: RunningServer, version: int) -> None:
    answer = put(server, f"room,version\nattic,{version}\nhall,0\n".encode())
    assert (answer.status_code, answer.json()["version"]) == (201 if version == 1 else 200, version)


def versions_of(rows: list[dict[str, Any]]) -> dict[int, Any]:
    return {row["n"]: row["version"] for row in rows}


def test_each_row_joins_the_version_that_was_current_when_it_arrived(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        server.http.post("/v1/streams", json=READINGS)
        put_version(server, 1)
        live = register(server, PLAN)
        feeding = Feeding(server)
        feeding.start()
        # Rows up to the first number arrived before a version, those after the second number after it.
        bounds = []
        for version in range(2, VERSIONS + 1):
            eventually(lambda seen=feeding.acked: feeding.acked > seen, "more rows")
            before = feeding.acked
            put_version(server, version)
            bounds.append((before, feeding.sent, version))
        eventually(lambda seen=feeding.sent: feeding.acked > seen, "rows behind the last version")
        count = feeding.stop()
        found = versions_of(answers(server, live, count))
        assert len(found) == count > VERSIONS
        assert sorted(found.values()) == [found[n] for n in sorted(found)]
        assert set(found.values()) == set(range(1, VERSIONS + 1))
        for before, after, version in bounds:
            assert found[before] < version
            # A row in flight while the table was put may have arrived before or after it.
            assert found.get(after + 1, version) >= version
        # The same rows, read again when all versions exist, join the same versions.
        again = register(server, PLAN, **{"from": "earliest"})
        assert versions_of(answers(server, again, count)) == found


def test_versions_survive_a_killed_engine(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        server.http.post("/v1/streams", json=READINGS)
        put_version(server, 1)
        query = register(server, PLAN)
        append(server, (1, "attic"))
        assert versions_of(answers(server, query, 1)) == {1: 1}
        engine = server.engine_pid
        assert engine is not None
        os.kill(engine, signal.SIGKILL)
        eventually(lambda: not server.ready, "the server to notice")
        put_version(server, 2)  # no row has joined it yet
        eventually(lambda: server.ready, "another engine")
        running = f"/v1/queries/{query}"
        eventually(lambda: server.http.get(running).json()["state"] == "running", "the query to run again")
        append(server, (2, "attic"))
        put_version(server, 3)
        append(server, (3, "attic"), (4, "cellar"))
        expected = {1: 1, 2: 2, 3: 3, 4: None}
        assert versions_of(answers(server, query, 4)) == expected
        again = register(server, PLAN, **{"from": "earliest"})
        assert versions_of(answers(server, again, 4)) == expected


def test_versions_survive_a_killed_server(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        server.http.post("/v1/streams", json=READINGS)
        append(server, (0, "attic"))
        feeding = Feeding(server)
        feeding.start()
        for version in (1, 2, 3):
            put_version(server, version)
            eventually(lambda seen=feeding.acked: feeding.acked > seen + 5, "more rows")
        before = register(server, PLAN, **{"from": "earliest"})
        found = versions_of(answers(server, before, feeding.acked))
        kept = server.http.get("/v1/tables/rooms").json()["kept"]
        server.kill()
        feeding.join(PATIENCE)
    # Left over by a crash: a version being written, a table being created or removed.
    (tmp_path / "tables" / "rooms" / "draft").write_bytes(b"half")
    for name in (".new-homes", ".removed-homes-1"):
        (tmp_path / "tables" / name).mkdir()
    with running_server(tmp_path) as server:
        assert server.http.get("/v1/tables/rooms").json()["kept"] == kept
        assert [path.name for path in (tmp_path / "tables").iterdir()] == ["rooms"]
        put_version(server, 4)
        append(server, (-1, "attic"))
        count = server.http.get("/v1/streams/readings").json()["position"]
        again = register(server, PLAN, **{"from": "earliest"})
        after = versions_of(answers(server, again, count))
        assert (after[0], after[-1]) == (None, 4)
        assert {n: after[n] for n in found} == found
        assert set(found.values()) == {None, 1, 2, 3}
