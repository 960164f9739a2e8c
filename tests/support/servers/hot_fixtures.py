"""Fixtures of a server with readings and a query of hot ones; test modules name this as a plugin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.servers.hot_readings import Feed
from tests.support.servers.running_server import RunningServer, running_server
from tests.support.services.query_service import HOT, READINGS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    env = {
        "MAVSTREAM_RESULT_BYTES": "1MiB",
        "MAVSTREAM_MAX_SUBSCRIBERS": "40",
        # Result logs keep what the last two checkpoints need.
        "MAVSTREAM_CHECKPOINT_INTERVAL": "200ms",
    }
    with running_server(tmp_path_factory.mktemp("data"), env=env) as made:
        made.http.post("/v1/streams", json=READINGS).raise_for_status()
        yield made


@pytest.fixture
def feed(server: RunningServer, request: pytest.FixtureRequest) -> Iterator[Feed]:
    made = Feed(server, f"p{abs(hash(request.node.name))}")
    yield made
    made.producer.close()


@pytest.fixture
def query(server: RunningServer) -> Iterator[str]:
    """A query that answers every row above 20, removed at the end."""
    made = server.http.post("/v1/queries", json=HOT)
    assert made.status_code == 201, made.text
    yield made.json()["id"]
    server.http.delete(f"/v1/queries/{made.json()['id']}")
