"""The checks of chaos: each finds what it has to find, and nothing else."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from chaos.chains import chains
from chaos.checks import AnswerChecks, History, ReadBack, check_streams
from chaos.comparison import (
    Difference,
    PausedRange,
    PutRange,
    compare,
    compare_paused,
    compare_shed,
    compare_versions,
)
from chaos.expected import Expected
from chaos.report import ChaosReport
from chaos.subscribers import Received
from chaos.workload import PRODUCERS, ChaosQuery, Part, bounded, queries

NOON = datetime(2026, 1, 1, 12)
ROWS = [(1, "a", 0.1), (1, "a", 0.2), (2, None, 3.0), (2, NOON, 4.0)]
QUERY = ChaosQuery("numbers", None, "SELECT n FROM left_")
ACKED = 6


def counts(difference: Difference) -> tuple[int, int, int, int]:
    return difference[:4]


def test_equal_multisets_do_not_differ() -> None:
    shuffled = [(2, NOON.replace(tzinfo=UTC), 4.0 * (1 + 1e-12)), ROWS[2], ROWS[1], ROWS[0]]
    assert compare(ROWS, shuffled).clean


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (ROWS[1:], (1, 0, 0, 0)),
        ([], (4, 0, 0, 0)),
        ([*ROWS, ROWS[3]], (0, 1, 0, 0)),
        ([*ROWS[:3], (2, NOON, 4.0001)], (0, 0, 1, 0)),
        ([*ROWS, (3, "new", 1.0)], (0, 0, 0, 1)),
        ([*ROWS[:2], (2, "b", 3.0), ROWS[3]], (1, 0, 0, 1)),
    ],
)
def test_lost_repeated_altered_and_foreign_answers_are_found(
    found: list[tuple[object, ...]], expected: tuple[int, ...]
) -> None:
    assert counts(compare(ROWS, found)) == expected


def test_a_paused_query_may_leave_out_the_rows_of_its_pauses_and_no_others() -> None:
    pauses = [PausedRange(3, 6)]
    assert compare_paused(8, [0, 1, 2, 6, 7], pauses).clean
    assert compare_paused(8, [0, 1, 2, 3, 5, 6, 7], pauses).clean
    assert counts(compare_paused(8, [0, 1, 6, 7], pauses)) == (1, 0, 0, 0)
    assert counts(compare_paused(8, [0, 1, 2, 4, 4, 4, 6, 7], pauses)) == (0, 2, 0, 0)
    assert counts(compare_paused(8, [0, 1, 2, 6, 7, 8], pauses)) == (0, 0, 0, 1)


def test_of_a_query_that_was_shed_as_many_rows_are_missing_as_it_has_counted() -> None:
    assert compare_shed(6, [0, 2, 3, 5], 2).clean
    assert counts(compare_shed(6, [0, 2, 3], 2)) == (1, 0, 0, 0)
    assert counts(compare_shed(6, [0, 2, 3, 4, 5], 2)) == (1, 0, 0, 0)
    assert counts(compare_shed(6, [0, 2, 3, 3, 5], 2)) == (0, 1, 0, 0)


LABELS = [(0, "a", None), (1, None, None), (2, "b", None), (3, "a", None)]


@pytest.mark.parametrize(
    ("generations", "altered"),
    [((0, None, 0, 1), 0), ((0, None, 1, 1), 0), ((1, None, 1, 1), 1), ((0, None, 0, 0), 1)],
)
def test_rows_join_a_version_that_they_could_have_met(generations: tuple[int, ...], altered: int) -> None:
    found = [(n, label, generation) for (n, label, _), generation in zip(LABELS, generations, strict=True)]
    puts = [PutRange(1, 1, 3)]
    assert counts(compare_versions(LABELS, found, puts)) == (0, 0, altered, 0)
    assert counts(compare_versions(LABELS, found[1:], puts))[0] == 1


def test_versions_never_go_back() -> None:
    found = [(0, "a", 1), (1, None, None), (2, "b", 0), (3, "a", 1)]
    assert counts(compare_versions(LABELS, found, [PutRange(1, 0, 3)])) == (0, 0, 1, 0)


def received(
    *parts: tuple[int, int, list[int]], gaps: tuple[str, ...] = (), state: str = "finished"
) -> Received:
    """Return answers in parts of offset, epoch and numbers."""
    batches = [(first, epoch, pa.record_batch({"n": pa.array(n, pa.int64())})) for first, epoch, n in parts]
    return Received(batches, list(gaps), state, None)


WHOLE = received((0, 1, [0, 1, 2]), (3, 1, [3, 4, 5]))


def checked(live: Received, stored: Received = WHOLE) -> ChaosReport:
    report = ChaosReport(1)
    expected = Expected({Part("left"): ACKED, Part("right"): ACKED})
    AnswerChecks(expected, History(), report).check(QUERY, live, stored)
    expected.close()
    return report


def test_a_course_without_faults_is_clean() -> None:
    assert not checked(WHOLE).failed
    assert not checked(WHOLE, received((3, 1, [3, 4, 5]))).failed, "retention has removed the first answers"


@pytest.mark.parametrize(
    ("live", "figure", "sentence"),
    [
        (received((0, 1, [0, 1, 2, 3, 4])), "answers_lost", "received live: 1 lost"),
        (received((0, 1, [0, 1, 2, 3, 4, 5, 5])), "answers_repeated", "received live: 1 repeated"),
        (received((0, 1, [0, 1, 2]), (3, 2, [3, 4, 5])), "epochs_changed", "the epoch changed 1 times"),
        (received((0, 1, [0, 1, 2, 3, 4, 5]), gaps=("restart",)), "gaps", "1 gaps were received: restart"),
        (received((0, 1, [0, 1, 2]), (4, 1, [3, 4, 5])), None, "expected the answer with offset 3, got 4"),
        (received((0, 1, [0, 1, 2, 3, 4, 5]), state="failed"), None, "ended as failed"),
        (received((0, 1, [1, 0, 2, 3, 4, 5])), None, "2 answers in the result log are not those received"),
    ],
)
def test_every_violation_of_a_subscriber_is_found(live: Received, figure: str | None, sentence: str) -> None:
    report = checked(live)
    assert sentence in "\n".join(report.violations)
    assert figure is None or getattr(report, figure) == 1


def test_violations_of_the_result_log_are_found() -> None:
    report = checked(WHOLE, received((0, 1, [0, 1, 2, 3, 4])))
    assert "in the result log: 1 lost" in report.violations[0]
    assert "1 answers in the result log are not those received" in report.violations[1]


@pytest.mark.parametrize(
    ("read_back", "lost", "doubled"),
    [(ReadBack(6, 6), 0, 0), (ReadBack(5, 5), 1, 0), (ReadBack(8, 6), 0, 2), (ReadBack(6, 5), 1, 1)],
)
def test_lost_and_doubled_rows_of_streams_are_found(read_back: ReadBack, lost: int, doubled: int) -> None:
    report = ChaosReport(1, acked=Counter(left=ACKED))
    check_streams({"left": read_back}, report)
    assert (report.rows_lost, report.rows_doubled, report.failed) == (lost, doubled, bool(lost or doubled))


def test_every_query_of_a_seed_has_expected_answers() -> None:
    expected = Expected({part: 2000 for parts in PRODUCERS.values() for part in parts})
    for query in (*queries(5), *chains(5), bounded(5, 0, 100)):
        assert expected.answers(query), query.name
    expected.close()


def test_chains_differ_by_seed_and_read_queries_that_are_there_before() -> None:
    tops = set()
    for seed in range(40):
        known = {query.name for query in queries(seed)}
        for query in chains(seed):
            plan = query.flow.build()
            assert plan.queries
            assert plan.queries <= known
            assert query.name not in known
            known.add(query.name)
            tops |= {node.op for node in plan.nodes.values()}
        assert [one.sql for one in chains(seed)] == [one.sql for one in chains(seed)]
    assert tops == {"source", "select", "project", "union", "aggregate", "join", "table"}
