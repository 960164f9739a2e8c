"""What the command says about mistakes: the object, what was expected, what it got, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.commands.in_process import Outcome
from tests.support.commands.in_process import command as run_here

from mavstream import Client
from mavstream.testing import start_server

FIELDS = [
    {"name": "at", "type": "timestamp"},
    {"name": "room", "type": "string"},
    {"name": "temperature", "type": "float"},
]
ADMIN, READER = "admin-secret-of-tests", "reader-secret-of-tests"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with start_server() as found:
        with Client(found) as client:
            client.create_stream(name="readings", fields=FIELDS, event_time="at")
        yield found


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    with start_server(tokens=f"admin:{ADMIN},client:{READER}") as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with files that are wrong in several ways."""
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "text.yaml": "just text",
        "broken.yaml": "name: [a",
        "kitchen.yaml": "{root: h, nodes: {r: {op: source, stream: readings}, "
        "h: {op: select, input: r, where: 'room = \"kitchen\"'}}}",
        "latency.yaml": "{sql: select * from readings, qos: {latency: 3}}",
        "bad.csv": "at,room,temperature\n2026-01-01T00:00:00Z,kitchen,warm\n",
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def failed(url: str, *words: str, **environment: str) -> Outcome:
    done = run_here(*words, MAVSTREAM_URL=url, COLUMNS="400", **environment)
    assert done.returncode in (1, 2, 3), done
    assert "Traceback" not in done.stderr
    for word in ("Input should", "validation error", "Extra inputs", "Tuple should", "Unprocessable"):
        assert word not in done.stderr, "words of pydantic"
    return done


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["stream", "create", "s", "--field", "Temp (C):float"],
            "fields/0/name (name): name 'Temp (C)' is not an identifier: use letters a-z, digits and _, and "
            "no digit in front, such as 'Temp_C'",
        ),
        (["stream", "create", "my-stream", "--field", "x:int"], "such as 'my_stream'"),
        (
            ["stream", "create", "s", "--field", "x:flaot"],
            "'type' must be 'int', 'float', 'bool', 'string' or 'timestamp', got 'flaot'",
        ),
        (["producer", "delete", "meter-7"], "name 'meter-7' is not an identifier"),
        (
            ["stream", "show", "reading"],
            "create it with 'mavstream stream create', or did you mean 'readings'",
        ),
        (
            ["query", "show", "hot"],
            "there is no query 'hot': 'mavstream query list' lists",
        ),
        (["table", "show", "rooms"], "make it with 'mavstream table put rooms FILE'"),
        (["class", "delete", "alarms"], "create it with 'mavstream class set alarms PRIORITY'"),
        (["class", "set", "alarms", "0"], "'priority' must be greater than or equal to 1, got 0"),
        (["scheduler", "trace", "--seconds", "-1"], "'seconds' must be greater than 0, got '-1.0'"),
        (
            ["scheduler", "set", "rr", "--option", "foo=1"],
            "policy 'rr' has no option 'foo': its options are unit, tuples, quantum_us",
        ),
        (["scheduler", "set", "rr", "--option", "tuples=x"], "policy 'rr': 'tuples' must be"),
        (["stream", "create", "s", "-f", "none.yaml"], "error: 'none.yaml' cannot be read: No such file"),
        (
            ["stream", "create", "s", "-f", "text.yaml"],
            "cannot be read: expected an object in YAML or JSON, such as 'name: readings', got text",
        ),
        (
            ["stream", "create", "s", "-f", "broken.yaml"],
            "'broken.yaml' cannot be read: it is no YAML: line 1, column 9: expected ',' or ']'",
        ),
        (
            ["query", "submit", "kitchen.yaml"],
            "no field `kitchen`; use single quotes for text: 'kitchen'",
        ),
        (
            ["query", "submit", "latency.yaml"],
            "qos/latency (invalid_value): 'latency' must be an object",
        ),
        (["sql", "-f", "none.sql"], "'none.sql' cannot be read: No such file or directory"),
        (
            ["stream", "append", "readings", "bad.csv", "--bad-rows", "no/such/file"],
            "file 'no/such/file' for bad rows cannot be written: No such file or directory: give --bad-rows",
        ),
        (["feed", "readings=bad.csv", "--producer", "meter 7!"], "name 'meter 7!' is not an identifier"),
        (["token", "create", "bad name", "--role", "client"], "name 'bad name' is not an identifier"),
        (["token", "list", "-f", "bad.csv"], "'bad.csv' is not a file of tokens"),
        (["simulate", "latency.yaml"], "'classes' is required"),
        (["serve", "--port", "99999"], "--port: the value must be less than or equal to 65535"),
        (
            ["info", "--url", "foo"],
            "error: expected http://HOST:PORT or https://HOST as the address of a server",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_explained(url: str, folder: Path, words: list[str], said: str) -> None:
    assert said in failed(url, *words).stderr


@pytest.mark.parametrize(
    ("token", "words", "said"),
    [
        ({}, ["stream", "list"], "got no token: give --token, set MAVSTREAM_TOKEN"),
        ({"MAVSTREAM_TOKEN": "guess"}, ["stream", "list"], "check --token and MAVSTREAM_TOKEN"),
        (
            {"MAVSTREAM_TOKEN": READER},
            ["stream", "delete", "readings"],
            "role admin, got one of role client: give another with --token or MAVSTREAM_TOKEN",
        ),
    ],
)
def test_a_missing_token_or_role_is_said_in_words_of_the_command(
    guarded: str, token: dict[str, str], words: list[str], said: str
) -> None:
    assert said in failed(guarded, *words, **token).stderr


def test_a_server_that_is_not_there_is_said_with_what_to_do() -> None:
    done = failed("http://127.0.0.1:1", "info")
    assert done.returncode == 3
    assert done.stderr.strip() == (
        "error: cannot reach http://127.0.0.1:1 (Connection refused): start a server with "
        "'mavstream serve', or name another with --url or MAVSTREAM_URL"
    )
