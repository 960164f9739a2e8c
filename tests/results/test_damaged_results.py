"""Subscribers and pulls get a gap with its reason for damaged results, and all rows around it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.damaged_files import flip, segments
from tests.support.services.result_log import Answers, available, numbers

from mavstream_protocol.wire.results import OnLag
from mavstream_server.log import LogReader


@pytest.fixture
def answers(tmp_path: Path) -> Iterator[Answers]:
    """Thirty answers in frames of ten; the middle one is damaged."""
    with Answers(tmp_path, segment_bytes=64 << 10) as made:
        for _ in range(3):
            made.answer(10)
        second = LogReader(made.path).cursor(10).next()
        assert second is not None
        flip(segments(made.path)[0], second[0].byte_offset + 200)
        yield made


@pytest.mark.parametrize("on_lag", list(OnLag))
def test_a_subscriber_is_told_which_rows_are_damaged(answers: Answers, on_lag: OnLag) -> None:
    _, before, gap, behind = available(answers.subscribe(on_lag=on_lag))
    assert (numbers([before]), numbers([behind])) == (list(range(10)), list(range(20, 30)))
    assert {name: gap[name] for name in ("type", "start", "stop", "reason")} == {
        "type": "gap",
        "start": 10,
        "stop": 20,
        "reason": "damage",
    }
    assert "rows 10 to 19 (10) are lost" in gap["detail"]
    assert behind["offset"] == 20
    (damage,) = answers.service.damage.found.values()
    assert (damage.start, damage.stop, damage.rows) == (10, 20, 10)


def test_a_pull_reports_damage_as_the_reason_of_its_gap(answers: Answers) -> None:
    first = json.loads(answers.service.pull(answers.query).json())
    assert (len(first["rows"]), first["next"], first["gap"], first["gap_reason"]) == (10, 9, None, None)
    second = json.loads(answers.service.pull(answers.query, after=9).json())
    assert (second["gap"], second["gap_reason"]) == ([10, 20], "damage")
    assert [row["n"] for row in second["rows"]] == list(range(20, 30))
