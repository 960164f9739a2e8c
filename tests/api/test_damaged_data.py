"""A real server on damaged, deleted and foreign files: what it serves, reports and refuses."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.damaged_files import flip, frame_offsets, segments
from tests.support.servers.readings import create, plan, register, row
from tests.support.servers.running_server import RawProducer, RunningServer, eventually, running_server


def feed(server: RunningServer, start: int, stop: int) -> None:
    """Send rows, each acked before the next, so that each is a frame of its own."""
    with RawProducer(server, f"p{start}", "readings") as producer:
        for n in range(start, stop):
            producer.rows("readings", n - start + 1, [row(n)])
            producer.acked("readings", n - start + 1)


def test_a_damaged_frame_costs_its_row_and_is_reported_everywhere(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        create(server)
        feed(server, 0, 60)
    log = tmp_path / "streams" / "readings"
    file, offset, nbytes = frame_offsets(log)[5]
    flip(file, offset + 60)
    with running_server(tmp_path) as server:
        feed(server, 60, 62)
        query = register(server, plan=plan(), **{"from": "earliest"})

        def answers() -> list[dict[str, object]]:
            found = server.http.get(f"/v1/queries/{query}/results", params={"limit": 100}).json()["rows"]
            return found if len(found) >= 61 else []

        assert eventually(answers, "answers") == [row(n) for n in range(62) if n != 5]
        answer = server.http.get("/readyz")
        assert answer.status_code == 200
        (damage,) = answer.json()["damage"]
        assert damage == {
            "file": f"streams/readings/{file.name}",
            "offset": offset,
            "bytes": nbytes,
            "start": 5,
            "stop": 6,
            "rows": 1,
            "reason": "the checksum is wrong",
        }
        metrics = server.http.get("/metrics").text
        assert 'mavstream_damage_total{directory="readings"} 1.0' in metrics
        assert 'mavstream_damaged_rows_total{directory="readings"} 1.0' in metrics
        assert 'reason="damaged"} 1.0' in metrics
        eventually(lambda: any("damaged file" in line for line in server.log), "a line in the log")


def test_damaged_headers_cost_no_row_at_the_start_or_while_the_server_runs(tmp_path: Path) -> None:
    stream = tmp_path / "streams" / "readings"

    def rows(server: RunningServer, query: str, count: int) -> None:
        def found() -> bool:
            pulled: list[dict[str, object]] = []
            after: dict[str, object] = {}
            # A pull ends at a new epoch, which each start of the server begins.
            while True:
                answer = server.http.get(f"/v1/queries/{query}/results", params=after).json()
                if not answer["rows"]:
                    return pulled == [row(n) for n in range(count)]
                pulled += answer["rows"]
                after = {"after": answer["next"]}

        eventually(found, f"{count} answers")

    def damaged(server: RunningServer) -> set[str]:
        answer = server.http.get("/readyz")
        assert answer.status_code == 200
        assert all(one["rows"] == 0 for one in answer.json()["damage"])
        return {one["file"] for one in answer.json()["damage"]}

    with running_server(tmp_path) as server:
        create(server)
        feed(server, 0, 10)
        query = register(server, plan=plan(), **{"from": "earliest"})
        rows(server, query, 10)
    (file,), (results,) = segments(stream), segments(tmp_path / "results" / query)
    for each in (file, results):
        with each.open("r+b") as opened:
            opened.write(b"\xa5" * 128)
    with running_server(tmp_path) as server:
        feed(server, 10, 12)
        rows(server, query, 12)
        assert damaged(server) == {str(each.relative_to(tmp_path)) for each in (file, results)}
        assert 'mavstream_damage_total{directory="readings"} 1.0' in server.http.get("/metrics").text
        # The sealed segment is damaged again, and so is the one that is being written.
        flip(file, 0, 17, 60)
        flip(segments(stream)[-1], 0, 17)
        eventually(lambda: len(damaged(server)) == 3, "the writer to notice")
        feed(server, 12, 14)
        late = register(server, plan=plan(), name="late", **{"from": "earliest"})
        rows(server, query, 14)
        rows(server, late, 14)


def test_data_is_private_and_deleted_things_leave_no_open_files(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_server(data) as server:
        create(server)
        put = server.http.put("/v1/tables/homes", content="h\n1\n", headers={"content-type": "text/csv"})
        assert put.status_code == 201, put.text
        query = register(server)
        feed(server, 0, 3)
        results = f"/v1/queries/{query}/results"
        eventually(lambda: len(server.http.get(results).json()["rows"]) == 3, "answers")
        modes = {path: path.stat().st_mode & 0o777 for path in (data, *data.rglob("*"))}
        assert {oct(mode) for path, mode in modes.items() if path.is_dir()} == {"0o700"}
        assert {oct(mode) for path, mode in modes.items() if path.is_file()} == {"0o600"}
        assert len(modes) > 10
        assert server.http.delete(f"/v1/queries/{query}").status_code == 204
        assert server.http.delete("/v1/streams/readings").status_code == 204
        assert server.http.delete("/v1/tables/homes").status_code == 204

        def open_and_deleted() -> list[str]:
            processes = [server.pid, server.engine_pid]
            links = [link for pid in processes for link in Path(f"/proc/{pid}/fd").iterdir()]
            names = [str(link.readlink()) for link in links if link.is_symlink()]
            return [name for name in names if str(data) in name and name.endswith("(deleted)")]

        eventually(lambda: not open_and_deleted(), "no open files of what was deleted")


def test_orphan_directories_and_deleted_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "streams" / "unknown").mkdir(parents=True)
    (tmp_path / "results" / "unknown-1").mkdir(parents=True)
    with running_server(tmp_path) as server:
        create(server)
        feed(server, 0, 3)

        def ready() -> dict[str, object]:
            answer = server.http.get("/readyz")
            assert answer.status_code == 200
            found: dict[str, object] = answer.json()
            return found

        eventually(lambda: ready()["orphans"] == ["streams/unknown", "results/unknown-1"], "orphans")
        shutil.rmtree(tmp_path / "streams" / "readings")
        eventually(lambda: "were deleted" in str(ready()["failures"]), "the deletion to be noticed")
        answer = server.http.post("/v1/streams/readings/tuples", json={"rows": [row(3)]})
        assert answer.status_code in (503, 507)
        assert "were deleted" in answer.text
    with running_server(tmp_path) as server:
        (damage,) = server.http.get("/readyz").json()["damage"]
        assert damage["file"] == "streams/readings"
        assert "missing" in damage["reason"]


def test_a_garbled_catalog_is_refused_and_not_replaced(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        create(server)
        feed(server, 0, 3)
    catalog = tmp_path / "catalog.sqlite"
    intact = catalog.read_bytes()
    for garbled in (b"", bytes(len(intact)), intact[:16] + bytes(4080) + intact[4096:]):
        catalog.write_bytes(garbled)
        refused = subprocess.run(
            [sys.executable, "-m", "mavstream_server.commands", "--data", str(tmp_path), "--port", "0"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert refused.returncode != 0
        assert "catalog" in refused.stderr
        assert "restore it from a backup" in refused.stderr
        assert catalog.read_bytes() == garbled
    assert len(segments(tmp_path / "streams" / "readings")) == 1


def test_a_server_stamps_its_directory_upgrades_an_old_one_and_refuses_a_newer_one(tmp_path: Path) -> None:
    stamp = tmp_path / "FORMAT"
    with running_server(tmp_path) as server:
        create(server)
    written = stamp.read_bytes()
    stamp.unlink()  # as a release before there was one left it
    with running_server(tmp_path) as server:
        assert server.http.get("/v1/streams/readings").status_code == 200
        eventually(lambda: any("data directory upgraded" in line for line in server.log), "a line in the log")
    assert stamp.read_bytes() == written
    stamp.write_text('{"version": 99, "release": "9.9.9"}')
    refused = subprocess.run(
        [sys.executable, "-m", "mavstream", "serve", "--data", str(tmp_path), "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode != 0
    assert "has format version 99, written by release 9.9.9" in refused.stderr
    assert "Traceback" not in refused.stderr
