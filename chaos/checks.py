"""Checks of what was received: against DuckDB, against the result log, and of epochs, offsets and gaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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
from chaos.workload import ChaosQuery, Check


class ReadBack(NamedTuple):
    """How many rows a stream has, and how many different ones."""

    stored: int
    different: int


class History(NamedTuple):
    """What has happened to queries and tables and may show in answers."""

    pauses: Sequence[PausedRange] = ()
    puts: Sequence[PutRange] = ()
    shed: int = 0
    """Rows that the query which may be shed has counted."""


class AnswerChecks:
    """Compares the answers of queries with those that were expected."""

    def __init__(self, expected: Expected, history: History, report: ChaosReport) -> None:
        self._expected = expected
        self._history = history
        self._report = report

    def check(self, query: ChaosQuery, live: Received, stored: Received) -> None:
        """Check the answers of a query as a live subscriber got them, and as the result log has them."""
        report = self._report
        if live.state != "finished":
            report.violated(f"{query.name}: ended as {live.state}, {live.error or 'without an error'}")
        self._check_course(query.name, live)
        found = list(_rows(live))
        report.answers += len(found)
        difference = self._compare(query, found)
        report.answers_lost += difference.lost
        report.answers_repeated += difference.repeated
        report.answers_altered += difference.altered
        report.answers_foreign += difference.foreign
        if not difference.clean:
            report.violated(f"{query.name}, received live: {difference}")
        self._check_stored(query, live, stored)

    def _check_course(self, name: str, live: Received) -> None:
        """Check that offsets follow each other, and that there is one epoch and no gap."""
        report = self._report
        epochs = {epoch for _, epoch, _ in live.batches}
        if len(epochs) > 1:
            report.epochs_changed += len(epochs) - 1
            report.violated(f"{name}: the epoch changed {len(epochs) - 1} times")
        if live.gaps:
            report.gaps += len(live.gaps)
            report.violated(f"{name}: {len(live.gaps)} gaps were received: {'; '.join(live.gaps[:3])}")
        next_ = 0
        for first, _, batch in live.batches:
            if first != next_:
                report.violated(f"{name}: expected the answer with offset {next_}, got {first}")
            next_ = first + batch.num_rows

    def _check_stored(self, query: ChaosQuery, live: Received, stored: Received) -> None:
        """Check the result log: all answers if retention has removed none, else those that are left."""
        report = self._report
        if stored.error is not None:
            report.violated(f"{query.name}: the result log cannot be read: {stored.error}")
            return
        begin = stored.batches[0][0] if stored.batches else 0
        if begin == 0:
            difference = self._compare(query, list(_rows(stored)))
            if not difference.clean:
                report.violated(f"{query.name}, in the result log: {difference}")
        left = dict(_numbered(stored))
        received = {offset: row for offset, row in _numbered(live) if offset >= begin}
        different = sorted(
            offset for offset in left.keys() | received.keys() if left.get(offset) != received.get(offset)
        )
        if different:
            report.violated(
                f"{query.name}: {len(different)} answers in the result log are not those received, "
                f"the first at offset {different[0]}"
            )

    def _compare(self, query: ChaosQuery, found: list[tuple[Any, ...]]) -> Difference:
        expected, history = self._expected.answers(query), self._history
        match query.check:
            case Check.EQUAL:
                return compare(expected, found)
            case Check.PAUSED:
                return compare_paused(len(expected), [row[0] for row in found], history.pauses)
            case Check.SHED:
                return compare_shed(len(expected), [row[0] for row in found], history.shed)
            case Check.VERSIONS:
                return compare_versions(expected, found, history.puts)


def check_streams(read_back: Mapping[str, ReadBack], report: ChaosReport) -> None:
    """Check that every acked row is in its stream, once."""
    for name, (stored, different) in read_back.items():
        lost, doubled = report.acked[name] - different, stored - different
        report.rows_lost += lost
        report.rows_doubled += doubled
        if lost or doubled:
            report.violated(f"stream {name}: {lost} acked rows lost, {doubled} doubled")


def _rows(received: Received) -> Iterator[tuple[Any, ...]]:
    for _, row in _numbered(received):
        yield row


def _numbered(received: Received) -> Iterator[tuple[int, tuple[Any, ...]]]:
    for first, _, batch in received.batches:
        columns = [column.to_pylist() for column in batch.columns]
        yield from enumerate(zip(*columns, strict=True), first)
