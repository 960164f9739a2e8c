"""`mavstream sql`: scripts, formats, exit codes, and the interactive shell on a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.commands.in_process import Outcome, command
from tests.support.servers.running_server import PATIENCE, RunningServer, eventually, running_server

from mavstream.cli.sql.shell import is_complete

COMMAND = [sys.executable, "-m", "mavstream"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("data")) as running:
        rows = "INSERT INTO readings VALUES ('a, b', 21), ('c', 5)"
        script = f"CREATE STREAM readings (room string, temp int); {rows}"
        running.http.post("/v1/sql", json={"sql": script}).raise_for_status()
        yield running


def sql(server: RunningServer, *words: str, stdin: str = "", code: int = 0) -> Outcome:
    done = command("--url", server.url, "sql", *words, stdin=stdin)
    assert done.returncode == code, done.stderr
    return done


def test_statements_from_options_files_and_stdin(server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "script.sql"
    file.write_text("CREATE STREAM two (n int);\nINSERT INTO two VALUES (1), (2);")
    done = sql(server, "-c", "CREATE STREAM one (n int); DROP STREAM one", "-f", str(file))
    assert done.stdout.splitlines() == [
        "created stream one",
        "dropped stream one",
        "created stream two",
        "inserted 2 rows into two",
    ]
    assert "two" in sql(server, stdin="SHOW STREAMS").stdout
    assert "two" in sql(server, "-f", "-", stdin="SHOW STREAMS").stdout


def test_formats_and_rows_of_a_select(server: RunningServer) -> None:
    stored = ("--from", "earliest", "--limit", "2", "-c", "SELECT room, temp FROM readings")
    table = sql(server, *stored).stdout.splitlines()
    assert [line.split() for line in table[2:]] == [["a,", "b", "21"], ["c", "5"]]
    lines = sql(server, "-o", "json", *stored).stdout.splitlines()
    assert [json.loads(line) for line in lines] == [{"room": "a, b", "temp": 21}, {"room": "c", "temp": 5}]
    assert sql(server, "-o", "csv", *stored).stdout == 'room,temp\n"a, b",21\nc,5\n'
    described = sql(server, "-o", "json", "-c", "DESCRIBE readings; CREATE CLASS of_json").stdout.splitlines()
    assert json.loads(described[0])["column"] == "room"
    assert json.loads(described[2])["kind"] == "created"
    assert "created class of_csv" in sql(server, "-o", "csv", "-c", "CREATE CLASS of_csv").stderr
    idle = sql(server, "--idle", "0.3", "-c", "SELECT * FROM readings", "-o", "csv")
    assert idle.stdout == "room,temp\n"
    assert not [one for one in queries(server) if one.startswith("select_")], "they were removed"


def test_errors_point_at_the_column_and_exit_with_one(server: RunningServer, tmp_path: Path) -> None:
    done = sql(server, stdin="SHOW CLASSES;\nSELECT room FROM raedings;\nSHOW STREAMS", code=1)
    assert "SHOW STREAMS" not in done.stderr
    assert done.stderr.splitlines() == [
        "error: there is no stream, table or query `raedings`; did you mean `readings`?",
        "line 2: SELECT room FROM raedings",
        "                         ^",
    ]
    sql(server, "-f", str(tmp_path / "none.sql"), code=2)
    assert command("--url", "http://127.0.0.1:9", "sql", "-c", "SHOW STREAMS").returncode == 3


def queries(server: RunningServer) -> list[str]:
    return [one["spec"]["name"] for one in server.http.get("/v1/queries").json()["items"]]


class Terminal:
    """The shell on a pseudo-terminal."""

    def __init__(self, server: RunningServer, state: Path) -> None:
        self.seen = ""
        self._master, slave = pty.openpty()
        environment = {
            **os.environ,
            "TERM": "dumb",
            "XDG_STATE_HOME": str(state),
            "PROMPT_TOOLKIT_NO_CPR": "1",
        }
        self.process = subprocess.Popen(
            [*COMMAND, "--url", server.url, "sql"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(slave)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def expect(self, text: str) -> None:
        """Read until a text is there, behind what was expected before."""
        end = time.monotonic() + PATIENCE
        while text not in self.seen:
            assert time.monotonic() < end, f"waited for {text!r}, got {self.seen!r}"
            if select.select([self._master], [], [], 0.1)[0]:
                self.seen += os.read(self._master, 4096).decode(errors="replace")
        self.seen = self.seen.split(text, 1)[1]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_the_shell_goes_on_after_errors_and_ends_a_select_at_ctrl_c(
    server: RunningServer, tmp_path: Path
) -> None:
    terminal = Terminal(server, tmp_path)
    try:
        terminal.expect("mavstream> ")
        terminal.type("DESCRIBE\rreadings;\r")
        terminal.expect("string")
        terminal.type("SELECT nothing FROM readings;\r")
        terminal.expect("there is no column `nothing`")
        terminal.type("SELECT room FROM readings WHERE temp > 50;\r")
        eventually(lambda: any(name.startswith("select_") for name in queries(server)), "the query")
        server.http.post("/v1/streams/readings/tuples", json=[{"room": "the attic", "temp": 60}])
        terminal.expect("the attic")
        terminal.type("\x03")
        terminal.expect("mavstream> ")
        assert not any(name.startswith("select_") for name in queries(server))
        terminal.type("\\d\r")
        terminal.expect("readings")
        terminal.type("\\q\r")
        assert terminal.process.wait(PATIENCE) == 0
    finally:
        terminal.close()
    history = (tmp_path / "mavstream" / "sql_history").read_text()
    assert "+SELECT nothing FROM readings;" in history


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("\\d readings", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 'a;", False),
        ("SELECT 'a;\n';", True),
        ("SELECT 1 -- more;", False),
        ("SELECT /* a;", False),
        ("SELECT `;", True),
        ("SHOW STREAMS; SELECT 1", False),
    ],
)
def test_enter_runs_whole_statements(text: str, complete: bool) -> None:
    assert is_complete(text) is complete
