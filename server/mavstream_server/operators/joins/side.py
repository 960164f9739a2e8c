"""One side of an interval join: the rows that may still find partners."""

from __future__ import annotations

from collections.abc import Sequence

from mavstream_server.columns.batch import BEGIN_OF_TIME, Batch
from mavstream_server.columns.column import Ints
from mavstream_server.columns.pieces import Steps
from mavstream_server.operators.joins.recent_rows import MOST_ROWS, RecentRows
from mavstream_server.operators.joins.sorted_run import SortedRun

_MAX_LARGE_RUNS = 4
_MOST_ROWS = 1 << 17  # sorting more rows at once would take too long
_LARGE_RUN_ROWS = 1024  # searching two smaller runs takes longer than merging them


class Side:
    """The rows of one input that may still find partners: recent ones, and sorted runs of older ones.

    Each run is larger than the next. Small runs are merged at once, large ones with runs of similar size
    unless they are few, so that n rows form O(log n) runs and each row is sorted O(log n) times. A run is
    dropped when its latest row has expired, and its expired rows are removed when they cover more than half
    of its time span.
    """

    def __init__(self, keys: Sequence[str], columns: Sequence[str], reach: int) -> None:
        self.keys = tuple(keys)
        self.columns = tuple(columns)
        self.reach = reach
        """How far (us) the other side's watermark may pass a row before the row expires."""
        self.recent = RecentRows()
        self.runs: list[SortedRun] = []

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.recent.nbytes + sum(run.nbytes for run in self.runs)

    @property
    def codes(self) -> list[Ints]:
        """The codes of the rows' keys, in several arrays."""
        return [self.recent.codes, *(run.codes for run in self.runs)]

    def recode(self, mapping: Ints) -> Steps[None]:
        """Replace the codes of the keys, in steps; the mapping must preserve their order."""
        self.recent.recode(mapping)
        for number, run in enumerate(self.runs):
            self.runs[number] = yield from run.recode(mapping)

    def all_runs(self) -> list[SortedRun]:
        """Return all rows as sorted runs."""
        if not self.recent:
            return self.runs
        return [*self.runs, SortedRun.build(self.recent.rows, self.recent.codes)]

    def restore(self, runs: list[SortedRun]) -> None:
        """Replace all rows by those of sorted runs."""
        self.recent.clear()
        self.runs = runs

    def adding(self, rows: Batch, codes: Ints, run: SortedRun | None, watermark: int) -> Steps[None]:
        """Store rows for partners that arrive later, unless they expire at the other side's watermark (us).

        `run` has the same rows, if they were sorted already. Works in steps.
        """
        assert rows.time is not None
        if watermark != BEGIN_OF_TIME and int(rows.time.max()) < watermark - self.reach:
            return
        if len(self.recent) + rows.size <= MOST_ROWS:
            self.recent.append(rows, codes)
            return
        yield from self.sort_recent()
        yield from self._add(run or (yield from SortedRun.building(rows, codes)))

    def sort_recent(self) -> Steps[None]:
        """Turn the recent rows into a sorted run."""
        if self.recent:
            run = SortedRun.build(self.recent.rows, self.recent.codes)
            self.recent.clear()
            yield from self._add(run)

    def _add(self, run: SortedRun) -> Steps[None]:
        runs = self.runs
        runs.append(run)
        while len(runs) > 1 and self._too_small(runs[-2], runs[-1]):
            merged = yield from SortedRun.merging(runs[-2], runs[-1])
            runs[-2:] = [merged]

    def _too_small(self, older: SortedRun, newer: SortedRun) -> bool:
        """Return whether the last two runs are to be merged."""
        if older.size + newer.size > _MOST_ROWS:
            return False
        if older.size < _LARGE_RUN_ROWS:
            return True
        if newer.size >= _LARGE_RUN_ROWS and len(self.runs) <= _MAX_LARGE_RUNS:
            return False
        return older.size <= 2 * newer.size

    def expiring(self, watermark: int) -> Steps[None]:
        """Drop rows that can have no partner at or after the other side's watermark (us), in steps."""
        if watermark == BEGIN_OF_TIME:
            return
        since = watermark - self.reach
        self.recent.expire(since)
        if not self.runs:
            return
        kept = []
        for run in self.runs:
            if run.latest < since:
                continue
            thin = 2 * (since - run.earliest) > run.latest - run.earliest + 1
            kept.append((yield from run.since(since)) if thin else run)
        self.runs = [run for run in kept if run is not None]
