"""`mavstream token` makes tokens whose secrets are nowhere but in its output."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from tests.support.commands.in_process import Outcome, command

from mavstream_protocol.tokens import hash_secret


def token(file: Path, *words: str) -> Outcome:
    return command("token", *words, MAVSTREAM_TOKENS_FILE=str(file))


def stored(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(file.read_text())["tokens"]
    return found


def test_a_token_is_printed_once_and_stored_as_a_hash(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    limits = ("--streams", "roof_*", "--streams", "attic", "--queries", "3", "--state", "1MiB")
    done = token(file, "create", "roof", "--role", "feeder", *limits)
    secret = done.stdout.strip()
    assert (done.returncode, done.stderr, len(secret) > 40) == (0, "", True)
    (made,) = stored(file)
    assert (made["name"], made["role"], made["streams"]) == ("roof", "feeder", ["roof_*", "attic"])
    assert made["sha256"] == hash_secret(secret)
    assert made["quotas"] == {"queries": 3, "state": "1MiB"}
    assert secret not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    listed = token(file, "list").stdout
    assert "roof_* attic" in listed
    assert secret not in listed


def test_names_are_unique_and_tokens_can_be_removed(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    for name in ("a", "b"):
        assert token(file, "create", name, "--role", "client").returncode == 0
    again = token(file, "create", "a", "--role", "admin")
    assert (again.returncode, "has a token 'a': remove it first" in again.stderr) == (1, True)
    assert token(file, "remove", "a").returncode == 0
    assert [one["name"] for one in stored(file)] == ["b"]
    missing = token(file, "remove", "a")
    assert (missing.returncode, "there are b" in missing.stderr) == (1, True)
    assert token(file, "create", "no name", "--role", "client").returncode == 1


def test_a_secret_file_is_kept_if_it_is_there(tmp_path: Path) -> None:
    file, secret = tmp_path / "tokens.json", tmp_path / "secret"
    words = ("create", "a", "--role", "client", "--secret-file", str(secret), "--if-missing")
    assert token(file, *words) == (0, "", "")
    before = secret.read_text()
    assert stored(file)[0]["sha256"] == hash_secret(before.strip())
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert token(file, *words).returncode == 0
    assert secret.read_text() == before
    secret.unlink()
    assert token(file, *words).returncode == 0
    assert [one["sha256"] for one in stored(file)] == [hash_secret(secret.read_text().strip())]


def test_a_file_of_other_content_is_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("admin:abc\n")
    done = token(file, "create", "a", "--role", "client")
    assert (done.returncode, "is not a file of tokens" in done.stderr) == (2, True)
    assert file.read_text() == "admin:abc\n"
