"""`mavstream stats`, `mavstream top`, and `mavstream policies` without a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.commands.in_process import command
from tests.support.servers.running_server import eventually

from mavstream import Client, stream
from mavstream.cli.commands.stats import _p95
from mavstream.testing import start_server


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with start_server() as found, Client(found) as client:
        client.create_stream("readings", fields="v:int")
        client.put_class("alarms", 6)
        query = client.submit(stream("readings").where("v > 1"), name="high", class_="alarms")
        client.append("readings", [{"v": n} for n in range(10)])
        eventually(lambda: query.info().results == 8, "the answers")
        yield found


def test_metrics_are_shown(url: str) -> None:
    def lines() -> list[list[str]]:
        shown = command("stats", "--url", url).stdout
        assert "policy" in shown
        return [line.split()[:5] for line in shown.splitlines()]

    eventually(lambda: ["alarms", "6", "1", "10", "8"] in lines(), "the load of the class")
    assert json.loads(command("stats", "--url", url, "-o", "json").stdout)["streams"] == 1


def test_the_load_of_classes_and_queries_is_watched(url: str) -> None:
    def top() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            command("top", "--url", url, "--every", "0.1", "-o", "json").stdout
        )
        return found

    expected = [("alarms", 1), ("default", 0)]
    eventually(
        lambda: [(one["class"], one["queries"]) for one in top()["classes"]] == expected, "the classes"
    )
    found = top()
    assert [(one["query"], one["results"]) for one in found["queries"]] == [("high", 8)]
    shown = command("top", "--url", url, "--every", "0.1").stdout
    assert "1 queries, 0 subscribers" in shown
    assert "high" in shown


def test_the_percentile_is_that_of_the_answers_in_between() -> None:
    assert _p95({"160": 100, "168": 5}, {"160": 100}) == pytest.approx(2 ** (169 / 8) / 1e6)
    assert _p95({"160": 100}, {"160": 100}) is None
    assert _p95({}, {}) is None


def test_policies_are_listed_without_a_server() -> None:
    done = command("policies", "--url", "http://127.0.0.1:1", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert {"rr", "cqc", "hr"} <= {one["name"] for one in json.loads(done.stdout)}
