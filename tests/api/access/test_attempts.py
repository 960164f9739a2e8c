"""Wrong tokens are throttled by address and logged; tokens that were right before still are."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.servers.sensors import STREAM, problem
from tests.support.servers.tenants import tenants

from mavstream_server.api.access.attempts import Attempts, TooManyAttempts


def test_an_address_with_many_wrong_tokens_has_to_wait() -> None:
    now = 0.0
    attempts = Attempts(2, lambda: now)
    attempts.right("a", "good")
    for _ in range(2):
        attempts.check("a", "guess")
        attempts.wrong("a")
    with pytest.raises(TooManyAttempts, match=r"2 wrong tokens from a .* wait for 60 s"):
        attempts.check("a", "unseen")
    attempts.check("a", "good")
    attempts.check("b", "unseen")
    now = 60.0
    attempts.check("a", "unseen")
    attempts.wrong("a")
    attempts.check("a", "unseen")


def test_wrong_tokens_are_throttled_and_logged(tmp_path: Path) -> None:
    tokens = {"early": ("--role", "client"), "late": ("--role", "client")}
    with tenants(tmp_path, tokens, "--max-wrong-tokens", "3") as site:
        assert site.ask("early", "GET", STREAM).status_code == 200
        site.secrets["guess"] = "a-wrong-token"
        for _ in range(3):
            assert problem(site.ask("guess", "GET", STREAM)) == (401, "not_authorised")
        assert problem(site.ask("guess", "GET", STREAM)) == (429, "too_many_attempts")
        assert problem(site.ask("late", "GET", STREAM)) == (429, "too_many_attempts")
        assert site.ask("early", "GET", STREAM).status_code == 200
        assert site.server.http.get("/livez").status_code == 200
        warned = [event for event in site.server.events() if event["event"] == "wrong token"]
        assert [event["within_a_minute"] for event in warned] == [1, 3]
        assert {event["address"] for event in warned} == {"127.0.0.1"}
        assert not [line for line in site.server.log if "a-wrong-token" in line]
