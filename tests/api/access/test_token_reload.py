"""SIGHUP: the server reads its tokens again, and closes the websockets of those that are gone."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.commands.in_process import command
from tests.support.servers.running_server import RawProducer, closed_with, eventually, running_server
from tests.support.servers.sensors import SENSORS, STREAM


def create(file: Path, name: str, role: str) -> str:
    return command("token", "create", name, "--role", role, "--file", str(file)).stdout.strip()


def test_tokens_come_and_go_while_the_server_runs(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    root, writer = create(file, "root", "admin"), create(file, "writer", "feeder")
    with running_server(tmp_path / "data", "--tokens-file", str(file), token=root) as server:

        def status(token: str) -> int:
            return server.http.get(STREAM, headers={"authorization": f"Bearer {token}"}).status_code

        def reload(event: str) -> None:
            before = len(server.log)
            os.kill(server.pid, signal.SIGHUP)
            eventually(lambda: any(event in line for line in server.log[before:]), event)

        assert server.http.post(STREAM, json=SENSORS).status_code == 201
        late = create(file, "late", "client")
        assert (status(root), status(writer), status(late)) == (200, 200, 401)
        reload('"tokens reloaded"')
        assert status(late) == 200
        header = {"additional_headers": {"Authorization": f"Bearer {writer}"}}
        with RawProducer(server, "p", **header) as gone, RawProducer(server, "q") as kept:
            command("token", "remove", "writer", "--file", str(file))
            reload('"tokens reloaded"')
            assert closed_with(gone.socket)[0] == 4401
            assert status(writer) == 401
            kept.rows("sensors", 1, [{"n": 1, "x": 1}])
            kept.acked("sensors", 1)
        file.write_text("{")
        reload("tokens not reloaded")
        assert status(root) == 200
        assert not [line for line in server.log if root in line or late in line]
