"""The checks of the attack suite: each fails for what it has to find, and not otherwise."""

from __future__ import annotations

import pytest
from attack.attacks.kills import check_numbers
from attack.findings import MOST_VIOLATIONS, Findings
from attack.invariants import MIB, Limits, Observed, Waits, violations
from attack.target.bystander_process import Numbers, Pending
from attack.target.server import errors_in

LIMITS = Limits(wait_s=1.0, api_bytes=100 * MIB, engine_bytes=200 * MIB)
WAITS = Waits(0.1, 0.2, 0.3, acked=7, answered=7, missing=0, doubled=0, troubles=())
OBSERVED = Observed(WAITS, 100 * MIB, 200 * MIB, engine_before=42, engine_after=42, errors=())


def test_nothing_is_violated_within_the_limits() -> None:
    findings = Findings()
    findings.answered("GET /livez", 200, 1.0)
    assert violations(findings, OBSERVED, LIMITS) == []


@pytest.mark.parametrize(
    ("observed", "sentence"),
    [
        ({"livez_s": 1.5}, "a health check took 1.50 s, more than 1 s"),
        ({"ack_s": 1.5}, "an ack took 1.50 s, more than 1 s"),
        ({"answer_s": 1.5}, "an answer of the important query took 1.50 s, more than 1 s"),
        ({"missing": 2}, "2 rows were skipped by the important query"),
        ({"doubled": 2}, "2 rows were answered twice by the important query"),
        ({"answered": 6}, "7 rows were acked and 6 answered"),
        ({"troubles": ("a health check failed",)}, "a health check failed"),
        ({"api_bytes": 101 * MIB}, "the API process held 101 MiB, more than 100 MiB"),
        ({"engine_bytes": 201 * MIB}, "the engine held 201 MiB, more than 200 MiB"),
        ({"engine_after": None}, "the engine is not running"),
        ({"engine_after": 43}, "the engine died: process 42 became 43"),
        ({"errors": ("Traceback",)}, "the server logged an error: Traceback"),
    ],
)
def test_every_invariant_can_be_violated(observed: dict[str, object], sentence: str) -> None:
    of_waits = {name: value for name, value in observed.items() if name in Waits._fields}
    others = {name: value for name, value in observed.items() if name not in Waits._fields}
    made = OBSERVED._replace(waits=WAITS._replace(**of_waits), **others)
    assert violations(Findings(), made, LIMITS) == [sentence]


def test_a_slow_answer_violates_an_invariant_and_is_named() -> None:
    findings = Findings()
    findings.answered("GET /a", 200, 0.5)
    findings.answered("GET /b", 200, 2.0)
    findings.answered("GET /c", 200, 1.5)
    assert violations(findings, OBSERVED, LIMITS) == ["GET /b: took 2.00 s, more than 1 s"]


def test_server_errors_and_unexpected_close_codes_are_violations() -> None:
    findings, other = Findings(), Findings()
    findings.answered("a", 404, 0.0)
    findings.answered("b", 500, 0.0)
    other.answered("c", 503, 0.0)
    other.answered("d", 503, 0.0, documented=(503,))
    other.closed("e", 1011, (4400,))
    other.closed("f", 4400, (4400,))
    findings.add(other)
    assert findings.violations == [
        "b: status 500",
        "c: status 503",
        "e: the websocket was closed with 1011",
    ]
    assert (findings.requests, findings.statuses[503], findings.closes[4400]) == (4, 2, 1)


def test_violations_beyond_the_first_ones_are_counted() -> None:
    findings = Findings()
    for number in range(MOST_VIOLATIONS + 3):
        findings.expect(False, f"{number}")
    assert (len(findings.violations), findings.left_out) == (MOST_VIOLATIONS, 3)


def test_rows_that_are_skipped_or_answered_twice_are_found() -> None:
    numbers = Numbers()
    numbers.take([0, 1, 2])
    assert (numbers.answered, numbers.missing, numbers.doubled) == (3, 0, 0)
    numbers.take([2, 5])
    assert (numbers.answered, numbers.missing, numbers.doubled) == (4, 2, 1)


def test_the_longest_wait_includes_rows_that_still_wait() -> None:
    pending = Pending()
    pending.begin(0, 10.0)
    pending.begin(1, 11.0)
    pending.done(0, 10.5)
    assert pending.report(11.25) == 0.5
    assert pending.report(14.0) == 3.0, "row 1 is not done"
    pending.done(1, 14.5)
    assert (len(pending), pending.report(20.0), pending.report(30.0)) == (0, 3.5, 0.0)


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        ([0, 1, 2, 3], []),
        ([0, 1, 3], ["1 acked rows are lost, the first ones [2]"]),
        ([0, 1, 1, 2], ["1 rows are doubled, the first ones [1]"]),
        ([0, 2, 1], ["the rows are not in the order in which they were sent"]),
    ],
)
def test_lost_and_doubled_rows_of_a_killed_server_are_found(numbers: list[int], found: list[str]) -> None:
    findings = Findings()
    check_numbers(numbers, 3, findings)
    assert findings.violations == found


def test_errors_and_lines_that_are_no_events_are_found_in_a_log() -> None:
    info = '{"time": "now", "level": "info", "event": "stopped"}'
    error = '{"time":"now","level":"error","event":"unexpected error"}'
    assert list(errors_in([info, error, "Traceback (most recent call last):", info])) == [
        error,
        "Traceback (most recent call last):",
    ]
