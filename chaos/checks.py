"""Checks of what was received: against DuckDB, against the result log, and of epochs, offsets and gaps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from chaos.comparison import Difference, PausedRange, compare, compare_paused
from chaos.expected import Expected
from chaos.report import ChaosReport
from chaos.subscribers import Received
from chaos.workload import ChaosQuery


class ReadBack(NamedTuple):
    """How many rows a stream has, and how many different ones."""

    stored: int
    different: int


def check_query(
    query: ChaosQuery,
    live: Received,
    stored: Received,
    expected: Expected,
    pauses: Sequence[PausedRange],
    report: ChaosReport,
) -> None:
    """Check the answers of a query as a live subscriber got them, and as the result log has them."""
    if live.state != "finished":
        report.violated(f"{query.name}: ended as {live.state}, {live.error or 'without an error'}")
    _check_course(query.name, live, report)
    found = list(_rows(live))
    report.answers += len(found)
    difference = _compare(query, found, expected, pauses, report.acked)
    _count(difference, report)
    if not difference.clean:
        report.violated(f"{query.name}, received live: {difference}")
    _check_stored(query, live, stored, expected, pauses, report)


def _check_course(name: str, live: Received, report: ChaosReport) -> None:
    """Check that offsets follow each other, and that there is one epoch and no gap."""
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


def _check_stored(
    query: ChaosQuery,
    live: Received,
    stored: Received,
    expected: Expected,
    pauses: Sequence[PausedRange],
    report: ChaosReport,
) -> None:
    """Check the result log: all answers if retention has removed none, else those that are left."""
    if stored.error is not None:
        report.violated(f"{query.name}: the result log cannot be read: {stored.error}")
        return
    begin = stored.batches[0][0] if stored.batches else 0
    if begin == 0:
        difference = _compare(query, list(_rows(stored)), expected, pauses, report.acked)
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


def _compare(
    query: ChaosQuery,
    found: list[tuple[Any, ...]],
    expected: Expected,
    pauses: Sequence[PausedRange],
    acked: int,
) -> Difference:
    if query.pausable:
        return compare_paused(acked, [row[0] for row in found], pauses)
    return compare(expected.answers(query), found)


def _count(difference: Difference, report: ChaosReport) -> None:
    report.answers_lost += difference.lost
    report.answers_repeated += difference.repeated
    report.answers_altered += difference.altered
    report.answers_foreign += difference.foreign


def check_streams(read_back: Mapping[str, ReadBack], report: ChaosReport) -> None:
    """Check that every acked row is in its stream, once."""
    for name, (stored, different) in read_back.items():
        lost, doubled = report.acked - different, stored - different
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
