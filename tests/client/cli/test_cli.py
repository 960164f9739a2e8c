"""The command: its output, its exit codes, and its behaviour as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.support.commands.in_process import Outcome
from tests.support.commands.in_process import command as run_here
from tests.support.servers.running_server import eventually

from mavstream import Client, QueryFailed
from mavstream.testing import start_server

PLAN = """
root: hot
nodes:
  in: {op: source, stream: STREAM}
  hot: {op: select, input: in, where: "id >= 0"}
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with start_server() as found:
        yield found


@pytest.fixture
def name(url: str, request: pytest.FixtureRequest) -> str:
    """A stream unique to the test."""
    name = "c_" + request.node.name.partition("[")[0][-55:]
    with Client(url) as client:
        client.create_stream(
            name=name, fields=[{"name": "id", "type": "int"}, {"name": "word", "type": "string"}]
        )
    return name


def command(url: str, *args: str, stdin: str = "") -> Outcome:
    return run_here(*args, stdin=stdin, MAVSTREAM_URL=url)


def answer(url: str, *args: str, stdin: str = "") -> Any:
    done = command(url, *args, "-o", "json", stdin=stdin)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def plan_file(folder: Path, stream: str, where: str = "id >= 0") -> str:
    file = folder / f"{stream}_hot.yaml"
    file.write_text(PLAN.replace("STREAM", stream).replace("id >= 0", where))
    return str(file)


def test_streams_are_created_from_options_and_files(url: str, tmp_path: Path) -> None:
    made = answer(
        url, "stream", "create", "c_options", "--field", "at:timestamp", "--field", "t:float?",
        "--event-time", "at", "--lateness", "2s", "--retention", "1h",
    )  # fmt: skip
    assert made["spec"]["fields"][1] == {"name": "t", "type": "float", "nullable": True}
    assert (made["spec"]["lateness"], made["spec"]["retention"]["time"]) == ("2s", "1h")
    file = tmp_path / "stream.yaml"
    file.write_text("name: c_file\nfields: [{name: a, type: int}]\n")
    assert answer(url, "stream", "create", "-f", str(file))["name"] == "c_file"
    assert answer(url, "stream", "create", "c_renamed", "-f", str(file))["name"] == "c_renamed"
    alter = (
        url,
        "stream",
        "set",
        "c_renamed",
        "--add-field",
        "wet:bool?",
        "--retention",
        "2h",
        "--quota",
        "none",
    )
    changed = answer(*alter)
    assert changed["changed"] == ["fields/wet", "retention"]
    assert changed["spec"]["retention"] == {"time": "2h", "bytes": None}
    assert answer(*alter)["changed"] == []
    assert {"c_options", "c_file", "c_renamed"} <= {one["name"] for one in answer(url, "stream", "list")}
    assert answer(url, "stream", "show", "c_file")["position"] == 0
    assert answer(url, "stream", "delete", "c_file") == {"deleted": "c_file"}


def test_a_process_reads_its_standard_input_and_returns_an_exit_code(url: str, name: str) -> None:
    env = {**os.environ, "MAVSTREAM_URL": url, "PYTHONWARNINGS": "error"}
    rows = '{"id": 1, "word": "a"}\n'
    for stream, code, printed in ((name, 0, ""), ("nothing", 1, "there is no stream 'nothing'")):
        run = [sys.executable, "-m", "mavstream", "stream", "append", stream, "-o", "json"]
        done = subprocess.run(run, env=env, input=rows, capture_output=True, text=True, check=False)
        assert done.returncode == code
        assert json.loads(done.stdout or "{}") == ({} if code else {"stream": name, "rows": 1})
        assert printed in done.stderr
        assert bool(done.stderr) is bool(printed)


def test_tables_are_printed_by_default(url: str, name: str) -> None:
    listed = command(url, "stream", "list").stdout
    assert "watermark" in listed
    assert name in listed
    assert "id int, word string" in command(url, "stream", "show", name).stdout
    assert "default" in command(url, "class", "list").stdout
    assert "delivery" in command(url, "info").stdout
    assert "rr" in command(url, "policies").stdout
    assert "policy" in command(url, "scheduler", "show").stdout
    assert "p95 ms" in command(url, "query", "list").stdout


def test_stored_rows_are_printed(url: str, name: str) -> None:
    answer(url, "stream", "append", name, stdin='{"id": 1, "word": "a"}\n{"id": 2, "word": "b"}\n')
    table = command(url, "stream", "rows", name).stdout.split()
    assert table[:2] == ["id", "word"]
    assert table[-4:] == ["1", "a", "2", "b"]
    lines = command(url, "stream", "rows", name, "--limit", "1", "-o", "json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [{"id": 1, "word": "a"}]
    assert answer(url, "stream", "rows", name, "--after", "0") == {"id": 2, "word": "b"}
    ahead = command(url, "stream", "rows", name, "--after", "2")
    assert (ahead.returncode, "up to position 1" in ahead.stderr) == (1, True)


def test_rows_are_appended_from_files_and_standard_input(url: str, name: str, tmp_path: Path) -> None:
    lines = '{"id": 1, "word": "a"}\n{"id": 2, "word": "b"}\n'
    assert answer(url, "stream", "append", name, stdin=lines) == {"stream": name, "rows": 2}
    contents = {
        "rows.json": '[{"id": 3, "word": "c"}]',
        "columns.json": '{"id": [4, 5], "word": ["d", "e"]}',
        "rows.ndjson": lines,
        "rows.csv": 'id,word\n6,7\n7,"x, y"\nx,8',
    }
    for file, content in contents.items():
        (tmp_path / file).write_text(content)
    for file, rows in {"rows.json": 1, "columns.json": 2, "rows.ndjson": 2}.items():
        assert answer(url, "stream", "append", name, str(tmp_path / file))["rows"] == rows
    refused = command(url, "stream", "append", name, str(tmp_path / "rows.csv"))
    assert (refused.returncode, "line 4, column 'id'" in refused.stderr) == (1, True)
    (tmp_path / "rows.csv").write_text('id,word\n6,7\n7,"x, y"')
    assert answer(url, "stream", "append", name, str(tmp_path / "rows.csv"))["rows"] == 2
    parquet.write_table(pa.table({"id": [9], "word": ["z"]}), tmp_path / "rows.parquet")
    assert answer(url, "stream", "append", name, str(tmp_path / "rows.parquet"))["rows"] == 1
    assert answer(url, "stream", "show", name)["position"] == 10


def test_a_query_from_its_file_to_its_end(url: str, name: str, tmp_path: Path) -> None:
    made = answer(url, "query", "submit", plan_file(tmp_path, name), "--name", "cli_hot")
    query = made["id"]
    assert made["spec"]["name"] == "cli_hot"
    assert answer(url, "query", "pause", query)["desired"] == "paused"
    assert answer(url, "query", "resume", query)["desired"] == "running"
    answer(url, "stream", "append", name, stdin='{"id": 1, "word": "a"}\n{"id": 2, "word": "b"}\n')
    watched = command(url, "query", "watch", query, "--limit", "2", "-o", "json")
    assert [json.loads(line) for line in watched.stdout.splitlines()] == [
        {"id": 1, "word": "a"},
        {"id": 2, "word": "b"},
    ]
    assert command(url, "query", "watch", query, "--limit", "1", "--after", "0").stdout == "id\tword\n2\tb\n"
    replaced = answer(url, "query", "replace", "cli_hot", plan_file(tmp_path, name, "id >= 2"))
    assert (replaced["id"], replaced["revision"]) == (query, 1)
    idle = command(url, "query", "watch", query, "--after", "latest", "--idle", "0.1")
    assert (idle.returncode, idle.stdout) == (0, "")
    assert "cli_hot" in command(url, "query", "list").stdout
    shown = command(url, "query", "show", query).stdout
    assert "cli_hot" in shown
    assert "rows late" in shown
    assert "rows missed" in shown
    operators = answer(url, "query", "plan", query)["operators"]
    assert [one["name"] for one in operators] == ["in", "hot", "#output"]
    shown = command(url, "query", "plan", query).stdout
    assert "simplified segment" in shown
    assert "hot > #output" in shown
    later = answer(
        url, "query", "set", query, "--stop-at", "2100-01-01T00:00:00Z", "--qos", '{"max_loss": "1%"}'
    )
    assert (later["spec"]["stop_at"], later["spec"]["qos"]["max_loss"]) == (
        "2100-01-01T00:00:00.000000Z",
        "1%",
    )
    assert answer(url, "query", "set", query, "--stop-at", "never")["spec"]["stop_at"] is None
    assert "nothing is to be changed" in command(url, "query", "set", query).stderr
    assert "no JSON" in command(url, "query", "set", query, "--qos", "{").stderr
    assert answer(url, "query", "stop", query)["desired"] == "stopped"
    assert len(command(url, "query", "watch", query, "-o", "json").stdout.splitlines()) == 2
    assert answer(url, "query", "delete", query) == {"deleted": query}


def test_a_failed_query_goes_on_behind_the_row_that_it_failed_at(url: str, name: str, tmp_path: Path) -> None:
    nodes = {"in": {"op": "source", "stream": name}, "r": {"op": "project", "input": "in"}}
    nodes["r"] |= {"compute": {"root": "sqrt(id)"}}
    file = tmp_path / "roots.json"
    file.write_text(json.dumps({"name": "roots", "on_error": "fail", "plan": {"root": "r", "nodes": nodes}}))
    query = answer(url, "query", "submit", str(file))["id"]
    rows = [{"id": value, "word": "a"} for value in (4, -1, 9)]
    answer(url, "stream", "append", name, stdin="\n".join(json.dumps(row) for row in rows))
    with Client(url) as client, pytest.raises(QueryFailed, match="sqrt of a negative number"):
        list(client.query(query).results())
    refused = command(url, "query", "resume", query)
    assert (refused.returncode, "resume it with skip_to" in refused.stderr) == (1, True)
    assert (
        "'behind' is not STREAM=POSITION"
        in command(url, "query", "resume", query, "--skip-to", "behind").stderr
    )
    assert answer(url, "query", "resume", query, "--skip-to", "2")["state"] == "running"
    watched = command(url, "query", "watch", query, "--limit", "1", "-o", "json")
    assert json.loads(watched.stdout) == {"root": 3.0}
    answer(url, "query", "stop", query)
    again = command(url, "query", "resume", query, "--skip-to", f"{name}=0")
    assert "is stopped: skip_to is for a query that has failed" in again.stderr


def test_watching_can_be_interrupted(url: str, name: str, tmp_path: Path) -> None:
    query = answer(url, "query", "submit", plan_file(tmp_path, name))["id"]
    answer(url, "stream", "append", name, stdin='{"id": 1, "word": "a"}\n')
    with subprocess.Popen(
        [sys.executable, "-m", "mavstream", "--url", url, "query", "watch", query, "-o", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline()) == {"id": 1, "word": "a"}
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == ""


def test_a_check_reports_errors_with_pointers(url: str, name: str, tmp_path: Path) -> None:
    good = plan_file(tmp_path, name)
    found = answer(url, "query", "validate", good)
    assert found["valid"]
    assert found["admission"]["admitted"]
    shown = command(url, "query", "validate", good).stdout
    assert "in > hot" in shown
    assert "expected cost" in shown
    bad = tmp_path / "bad.yaml"
    bad.write_text(PLAN.replace("STREAM", name).replace("id >=", "number >="))
    done = command(url, "query", "validate", str(bad))
    assert done.returncode == 1
    assert "nodes/hot/where (unknown_" in done.stderr
    done = command(url, "query", "validate", str(bad), "-o", "json")
    assert (done.returncode, json.loads(done.stdout)["valid"]) == (1, False)


def test_classes_and_the_scheduler_are_set(url: str) -> None:
    assert answer(url, "class", "set", "cli_alarms", "7")["priority"] == 7
    assert answer(url, "class", "set", "cli_alarms", "7", "--latency", "20ms")["latency"] == "20ms"
    assert "20ms" in command(url, "class", "list").stdout
    answer(url, "class", "set", "cli_unused", "2")
    assert answer(url, "class", "delete", "cli_unused") == {"deleted": "cli_unused"}
    assert ("cli_alarms", 7) in [(one["name"], one["priority"]) for one in answer(url, "class", "list")]
    assert answer(url, "scheduler", "set", "wrr")["policy"] == "wrr"
    assert answer(url, "scheduler", "show")["policy"] == "wrr"
    assert answer(url, "scheduler", "set", "rr")["policy"] == "rr"
    assert {"rr", "wrr"} <= {one["name"] for one in answer(url, "policies")}
    words = ("--rule", "rank=off", "--period", "2s", "--goal", "delay=1", "--goal", "output_rate=2")
    settings = answer(url, "optimizer", "set", *words)["settings"]
    assert (settings["period"], settings["rules"]) == ("2s", {"rank": False})
    assert [one["quantifier"] for one in settings["specification"]["requirements"]] == [
        "minimise",
        "maximise",
    ]
    assert "rank" in command(url, "optimizer", "show").stdout
    assert answer(url, "optimizer", "decisions") == []
    assert answer(url, "info")["ready"] is True


@pytest.mark.parametrize(
    ("args", "code", "printed"),
    [
        (["query", "show", "nothing"], 1, "there is no query 'nothing'"),
        (["stream", "create", "x", "--field", "a:integer"], 1, "fields/0/type"),
        (["stream", "create", "x"], 2, "--field NAME:TYPE"),
        (["stream", "set", "x"], 2, "give --add-field"),
        (["stream", "set", "x", "--add-field", "wet:bool"], 1, '"nullable": true'),
        (["stream", "create", "x", "--field", "a"], 2, "'a' is not NAME:TYPE"),
        (["query", "submit", "none.yaml"], 2, "none.yaml"),
        (["query", "watch", "q", "--after", "soon"], 2, "neither an offset nor"),
        (["scheduler", "set", "rr", "--option", "a"], 2, "'a' is not NAME=VALUE"),
        (["scheduler", "set", "guess"], 1, "guess"),
        (["optimizer", "set", "--rule", "rank"], 2, "'rank' is not NAME=on or NAME=off"),
        (["optimizer", "set", "--goal", "speed=1"], 2, "is not METRIC=WEIGHT"),
        (["nonsense"], 2, "nonsense"),
        (["query", "list", "-o", "xml"], 2, "xml"),
    ],
)
def test_errors_are_printed_to_standard_error(url: str, args: list[str], code: int, printed: str) -> None:
    done = command(url, *args)
    assert (done.returncode, done.stdout) == (code, "")
    assert printed in done.stderr


def test_an_unreachable_server_gives_exit_code_3() -> None:
    done = command("http://127.0.0.1:1", "stream", "list")
    assert done.returncode == 3
    assert "cannot reach http://127.0.0.1:1" in done.stderr
    assert command("nonsense", "stream", "list").returncode == 2


def test_tokens_are_read_from_the_environment(tmp_path: Path) -> None:
    with start_server(tokens="admin:secret") as url:
        refused = command(url, "stream", "list")
        assert (refused.returncode, "got no token" in refused.stderr) == (1, True)
        assert command(url, "--token", "secret", "stream", "list").returncode == 0
        env = {"MAVSTREAM_URL": url, "MAVSTREAM_TOKEN": "secret"}
        assert run_here("info", **env).returncode == 0
        # A token on the command line can be seen by others; help must at least not print it.
        shown = run_here("--help", **env).stdout
        assert "--token" in shown
        assert "secret" not in shown


def test_help_names_every_command() -> None:
    shown = run_here("--help").stdout
    for name in ("serve", "stream", "class", "query", "feed", "demo", "policies", "scheduler", "info"):
        assert f" {name} " in shown
    assert run_here("--version").stdout.strip()[0].isdigit()


def test_a_package_that_is_not_installed_is_named(tmp_path: Path) -> None:
    # A broken package of the same name, ahead of the real one, simulates a missing extra.
    (tmp_path / "mavstream_server").mkdir()
    (tmp_path / "mavstream_server" / "__init__.py").write_text("import a_module_that_is_missing")
    done = subprocess.run(
        [sys.executable, "-m", "mavstream", "serve", "--port", "0", "--data", str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 2
    assert "No module named 'a_module_that_is_missing'" in done.stderr
    assert "pip install 'mavstream[server]'" in done.stderr


def test_a_terminal_shows_a_live_table(url: str, name: str, tmp_path: Path) -> None:
    import pty

    query = answer(url, "query", "submit", plan_file(tmp_path, name))["id"]
    answer(url, "stream", "append", name, stdin='{"id": 1, "word": "hello"}\n')
    main, side = pty.openpty()
    run = [sys.executable, "-m", "mavstream", "--url", url, "query", "watch", query, "--limit", "1"]
    process = subprocess.Popen(run, stdout=side, stderr=side, env={**os.environ, "TERM": "xterm"})
    os.close(side)
    shown = b""

    def read() -> bool:
        nonlocal shown
        try:
            shown += os.read(main, 65536)
        except OSError:
            return True
        return False

    eventually(read, "the end of the table")
    os.close(main)
    assert process.wait(30) == 0
    assert b"hello" in shown
    assert b"1 rows" in shown
