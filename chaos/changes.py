"""Changes of queries while the server is attacked: pauses, classes and targets."""

from __future__ import annotations

from collections.abc import Callable

from chaos.comparison import PausedRange
from chaos.report import ChaosReport
from chaos.schedule import Round
from chaos.server import ChaosServer, wait_for
from chaos.workload import CLASSES
from mavstream import MavstreamError

_TARGETS = (None, {"latency": {"p95": "50ms"}}, {"latency": {"p95": "2s"}})


class Changes:
    """Changes queries, and knows between which rows the pausable one was paused."""

    def __init__(self, server: ChaosServer, ids: dict[str, str], pausable: str, report: ChaosReport) -> None:
        self._server = server
        self._ids = ids
        self._pausable = pausable
        self._report = report
        self._paused_from: int | None = None
        self.pauses: list[PausedRange] = []
        """Each from the first row not answered before the pause to a position known after it."""

    def begin(self, round_: Round) -> None:
        """Make the change of a round."""
        if round_.change is None:
            return
        try:
            if round_.change == "pause":
                self._pause()
            else:
                self._change(round_.change, round_.pick)
            self._report.changes[round_.change] += 1
        except MavstreamError:
            self._report.refused_changes += 1

    def end(self) -> None:
        """Resume the paused query, once the server is ready again."""
        if self._paused_from is None:
            return
        query = self._server.client.query(self._ids[self._pausable])
        wait_for(lambda: _resumed(query.resume), "a paused query to resume")
        wait_for(lambda: query.info().state.value != "paused", "a resumed query to run")
        self.pauses.append(PausedRange(self._paused_from, self._position()))
        self._paused_from = None

    def _pause(self) -> None:
        if self._paused_from is None:
            # Noted first: if the answer is lost, the query may be paused all the same.
            self._paused_from = self._first_unanswered()
            self._server.client.query(self._ids[self._pausable]).pause()

    def _change(self, change: str, pick: int) -> None:
        query = self._server.client.query(list(self._ids.values())[pick % len(self._ids)])
        if change == "class":
            query.set_class(list(CLASSES)[pick // 100 % len(CLASSES)])
        else:
            query.update(qos=_TARGETS[pick // 100 % len(_TARGETS)])

    def _first_unanswered(self) -> int:
        """Return the number of the first row that the pausable query has not answered yet.

        Not the position of the stream: a query that resumes goes on with the next rows to arrive, so rows
        that had arrived before the pause and were not read by then are missed, too.
        """
        query = self._server.client.query(self._ids[self._pausable])
        answers = query.info().results
        last = query.pull(after=answers - 2, limit=1).rows if answers else []
        return int(last[-1]["n"]) + 1 if last else 0

    def _position(self) -> int:
        return self._server.client.stream_info("left").position


def _resumed(resume: Callable[[], object]) -> bool:
    try:
        resume()
    except MavstreamError:
        return False
    return True
