"""Log lines about recoveries: per query, and a summary once all are complete."""

from __future__ import annotations

import logging
from typing import NamedTuple

from mavstream_server.engine.query import RunningQuery

_log = logging.getLogger(__name__)

_CHECK_EVERY = 20_000_000  # ns
_QUIET = 1_000_000_000  # ns without another query to recover after which the summary is logged


class _Recovery(NamedTuple):
    query: RunningQuery
    begun: int
    rows: int
    """Stored results that are to be computed again."""


class Recoveries:
    """The recoveries of an engine's queries, from the read of a checkpoint to the end of its replay.

    Times are monotonic, in nanoseconds.
    """

    def __init__(self) -> None:
        self._pending: dict[str, _Recovery] = {}
        self._checked = self._begun = self._ended = 0
        self._complete = self._rows = 0

    def add(self, query: RunningQuery, begun: int) -> None:
        """Add a query that was restored from a checkpoint, which began at `begun`."""
        if not self.unfinished:
            self._begun = begun
        replay = query.output.replay
        self._pending[query.id] = _Recovery(query, begun, 0 if replay is None else replay.remaining)
        self._ended = begun

    @property
    def unfinished(self) -> bool:
        """Whether there are recoveries that the summary has not covered yet."""
        return bool(self._pending or self._complete)

    def check(self, now: int) -> None:
        """Log recoveries that are complete; cheap to call often."""
        if not self.unfinished or now - self._checked < _CHECK_EVERY:
            return
        self._checked = now
        for recovery in tuple(self._pending.values()):
            query = recovery.query
            if query.output.replay is None or not query.active:
                del self._pending[query.id]
                # A query that did not repeat all its results has been reported as an error.
                if query.output.replayed_rows == recovery.rows:
                    self._log_query(recovery, now)
        if not self._pending and now - self._ended >= _QUIET:
            self._log_summary()

    def _log_query(self, recovery: _Recovery, now: int) -> None:
        self._complete += 1
        self._rows += recovery.rows
        self._ended = now
        fields = {
            "query": recovery.query.id,
            "replayed_rows": recovery.rows,
            "seconds": _seconds(now - recovery.begun),
        }
        _log.info("query recovered", extra={"fields": fields})

    def _log_summary(self) -> None:
        if self._complete:
            fields = {
                "queries": self._complete,
                "replayed_rows": self._rows,
                "seconds": _seconds(self._ended - self._begun),
            }
            _log.info("queries recovered", extra={"fields": fields})
        self._complete = self._rows = 0


def _seconds(elapsed: int) -> float:
    return round(elapsed / 1e9, 3)
