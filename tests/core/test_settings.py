"""Settings are read from flags, then variables; an open server is refused, and tokens are never shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.tokens import Role, hash_secret
from mavstream_server.core.errors import NotFound, Refused, SequenceGap, StorageFull, WrongVersion
from mavstream_server.core.settings import Settings


def settings(env: dict[str, str] | None = None, **flags: object) -> Settings:
    return Settings.from_environment(env or {}, **flags)


def role_of(made: Settings, token: str) -> Role | None:
    found = made.principals().get(hash_secret(token))
    return None if found is None else found.role


def test_by_default_a_server_listens_on_loopback_only() -> None:
    made = settings()
    assert (made.host, made.port, made.delivery, made.policy) == ("127.0.0.1", 8000, "process", None)
    assert made.tokens == {}
    assert made.limits["max_queries"] == 5000
    assert "max_disk_bytes" not in made.limits


def test_flags_win_over_variables_which_win_over_defaults() -> None:
    env = {"MAVSTREAM_PORT": "9000", "MAVSTREAM_DATA": "/srv/a", "MAVSTREAM_DELIVERY": "sync"}
    made = settings(env, port=9001, data=None)
    assert (made.port, made.data, made.delivery) == (9001, Path("/srv/a"), "sync")
    assert made.catalog_file == Path("/srv/a/catalog.sqlite")
    assert settings({"MAVSTREAM_PORT": ""}).port == 8000


@pytest.mark.parametrize(("text", "interval"), [("2s", 2_000_000), ("off", None), ("0", None)])
def test_checkpoints_can_be_turned_off(text: str, interval: int | None) -> None:
    settings = Settings.from_environment({"MAVSTREAM_CHECKPOINT_INTERVAL": text})
    assert settings.checkpoint_interval == interval
    assert Settings().checkpoint_interval == 5_000_000


def test_sizes_and_durations_are_written_with_units() -> None:
    made = settings(
        {
            "MAVSTREAM_MAX_DISK_BYTES": "10GB",
            "MAVSTREAM_CREDIT_BYTES": "4194304",
            "MAVSTREAM_RESULT_TIME": "5m",
            "MAVSTREAM_ENGINE_TIMEOUT": "90s",
            "MAVSTREAM_POLICY_OPTIONS": "{}",
        }
    )
    assert (made.max_disk_bytes, made.credit_bytes, made.result_time) == (10**10, 4 << 20, 300_000_000)
    assert made.engine_timeout == 90_000_000


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"MAVSTREAM_PORT": "http"}, "MAVSTREAM_PORT: "),
        ({"MAVSTREAM_PORT": "70000"}, "MAVSTREAM_PORT: "),
        ({"MAVSTREAM_DELIVERY": "maybe"}, "MAVSTREAM_DELIVERY: .*'process' or 'sync'"),
        ({"MAVSTREAM_SHARING": "some"}, "MAVSTREAM_SHARING: .*'off', 'class' or 'all'"),
        ({"MAVSTREAM_POLICY_OPTIONS": "{"}, "policy options are not JSON"),
        ({"MAVSTREAM_MAX_BODY_BYTES": "16XB"}, "MAVSTREAM_MAX_BODY_BYTES: size '16XB'"),
        ({"MAVSTREAM_RESULT_TIME": "soon"}, "MAVSTREAM_RESULT_TIME: duration 'soon'"),
        ({"MAVSTREAM_ENGINE_TIMEOUT": "10ms"}, "MAVSTREAM_ENGINE_TIMEOUT: .*give 1s or more"),
        ({"MAVSTREAM_ADMISSION": "maybe"}, "MAVSTREAM_ADMISSION: .*'warn', 'refuse' or 'off'"),
        ({"MAVSTREAM_MAX_QUERIES": "0"}, "MAVSTREAM_MAX_QUERIES: "),
    ],
)
def test_a_wrong_setting_is_named(env: dict[str, str], words: str) -> None:
    with pytest.raises(Refused, match=words) as caught:
        settings(env)
    assert caught.value.code == "invalid_settings"


def test_a_wrong_flag_is_named_as_a_flag() -> None:
    with pytest.raises(Refused, match="--max-queries: "):
        settings(max_queries=-1)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.org", ""])
def test_listening_on_other_addresses_requires_a_token(host: str) -> None:
    with pytest.raises(Refused, match="no token is configured") as caught:
        settings(host=host)
    assert caught.value.code == "open_to_all"
    assert settings({"MAVSTREAM_TOKENS": "admin:0123456789abcdef"}, host=host).host == host
    with pytest.raises(Refused, match=r"role admin has 2 characters.*16 or more") as short:
        settings({"MAVSTREAM_TOKENS": "admin:x1"}, host=host)
    assert (short.value.code, "x1" in str(short.value)) == ("short_token", False)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost", "[::1]"])
def test_loopback_needs_no_token(host: str) -> None:
    assert settings(host=host).host == host


def test_tokens_have_roles() -> None:
    made = settings({"MAVSTREAM_TOKENS": "admin:abc, client:d:e ,feeder:ghi"})
    assert [role_of(made, token) for token in ("abc", "d:e", "ghi", "ab", "", "abcd", "\udcff")] == [
        *(Role.ADMIN, Role.CLIENT, Role.FEEDER),
        *(None, None, None, None),
    ]
    assert [each.name for each in made.principals().values()] == ["admin", "client", "feeder"]


def test_tokens_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# ours\nadmin:abc\n\nfeeder:ghi\n")
    assert role_of(settings({"MAVSTREAM_TOKENS_FILE": str(file)}), "ghi") is Role.FEEDER
    assert role_of(settings({"MAVSTREAM_TOKENS": "client:abc"}, tokens_file=file), "abc") is Role.ADMIN
    with pytest.raises(Refused, match="given twice"):
        settings({"MAVSTREAM_TOKENS_FILE": str(file), "MAVSTREAM_TOKENS": "admin:abc"})
    with pytest.raises(Refused, match="cannot be read: No such file"):
        settings(tokens_file=tmp_path / "none")
    file.write_text("# nothing\n")
    with pytest.raises(Refused, match="has no token"):
        settings(tokens_file=file)


def test_a_file_of_hashed_tokens_names_their_holders(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    roof = {"name": "roof", "role": "feeder", "sha256": hash_secret("abc"), "streams": ["roof_*"]}
    file.write_text(json.dumps({"tokens": [roof]}))
    found = settings(tokens_file=file, host="0.0.0.0").principals()[hash_secret("abc")]
    assert (found.name, found.role, found.may_use_stream("roof_1"), found.may_use_stream("attic")) == (
        "roof",
        Role.FEEDER,
        True,
        False,
    )
    for wrong, words in [
        ({"tokens": []}, "has no token"),
        ({"tokens": [roof, roof]}, "two tokens have the name 'roof'"),
        ({"tokens": [{**roof, "secret": SECRET}]}, "tokens/0/secret: 'secret' is not known here"),
        ({"tokens": [{**roof, "sha256": SECRET}]}, "tokens/0/sha256: "),
    ]:
        file.write_text(json.dumps(wrong))
        with pytest.raises(Refused, match=words) as caught:
            settings(tokens_file=file)
        assert SECRET not in str(caught.value)


SECRET = "s3cr3t-t0k3n"


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (f"boss:{SECRET}", "token 1 does not start with a role"),
        (SECRET, "token 1 does not start with a role"),
        (f"admin:{SECRET},client:{SECRET}", "token 2 .client. was given before"),
        (f"admin:{SECRET}\u00e4", "printable ASCII"),
        (f"admin:{SECRET} {SECRET}", "no spaces"),
        ("admin:", "one or more"),
        ({SECRET: "boss"}, "tokens: "),
    ],
)
def test_errors_never_quote_a_token(tokens: object, words: str) -> None:
    with pytest.raises(Refused, match=words) as caught:
        settings(tokens=tokens)
    assert SECRET not in str(caught.value)
    with pytest.raises(ValueError, match="tokens") as raw:
        Settings.model_validate({"tokens": tokens})
    assert SECRET not in str(raw.value)


def test_settings_never_show_a_token() -> None:
    made = settings(tokens={SECRET: "admin"})
    assert role_of(made, SECRET) is Role.ADMIN
    for shown in (repr(made), str(made), made.model_dump_json(), str(made.model_dump()), str(made.limits)):
        assert SECRET not in shown


def test_problems_have_a_status_a_code_and_a_remedy() -> None:
    gap = SequenceGap("p", "s", 3, 5)
    assert (gap.status, gap.code, gap.expected, gap.got) == (409, "sequence_gap", 3, 5)
    assert gap.problem().detail == (
        "producer 'p' sent frame 5 of stream 's', expected is frame 3: send again from 3"
    )
    missing = NotFound.stream("reading", ["readings"])
    assert (missing.problem().status, missing.code) == (404, "unknown_stream")
    assert "did you mean 'readings'" in missing.detail
    assert WrongVersion("class 'a'", 1, 2).problem().status == 412
    assert isinstance(StorageFull("x"), MavstreamError)
