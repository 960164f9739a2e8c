"""Changes while the server is attacked: pauses, classes, targets, versions of the table, new queries."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from chaos.comparison import PausedRange, PutRange
from chaos.report import ChaosReport
from chaos.schedule import Round
from chaos.server import ChaosServer, wait_for
from chaos.workload import CLASSES, TABLE, ChaosQuery, Check, bounded, table_rows
from mavstream import MavstreamError

_TARGETS = (None, {"latency": {"p95": "50ms"}}, {"latency": {"p95": "2s"}})
_OPTIMIZED = ("plan", "shedding")


class Changes:
    """Makes the changes of rounds, completes those that a fault has interrupted, and records them."""

    def __init__(
        self, server: ChaosServer, chosen: dict[str, ChaosQuery], seed: int, report: ChaosReport
    ) -> None:
        """`chosen` are the queries by id."""
        self._client = server.client
        self._chosen = chosen
        self._seed = seed
        self._report = report
        self._paused = next(id_ for id_, query in chosen.items() if query.check is Check.PAUSED)
        self._aimed = [id_ for id_, query in chosen.items() if query.qos is None]
        self._unfinished: Callable[[], object] | None = None
        self._put_after: int | None = None
        self._decisions: set[tuple[str, str]] = set()
        self.pauses: list[PausedRange] = []
        """Each from the first row not answered before the pause to a position known after it."""
        self.puts: list[PutRange] = []
        """Between which rows each version of the table became current."""
        self.started: dict[str, ChaosQuery] = {}
        """Queries that were started in rounds, by id."""

    def begin(self, round_: Round) -> None:
        """Make the change of a round; a fault may already be under way."""
        if round_.change is None:
            return
        try:
            self._make(round_.change, round_.pick)
        except MavstreamError:
            self._report.interrupted_changes += 1
        else:
            self._report.changes[round_.change] += 1

    def end(self) -> None:
        """Complete the change of the round, once the server is ready again."""
        if self._unfinished is not None:
            unfinished = self._unfinished
            wait_for(lambda: _done(unfinished), "a change to be completed")
            self._unfinished = None
        if self._put_after is not None:
            # Not before: rows that had arrived when the table was put may have been appended after it.
            self.puts.append(PutRange(len(self.puts) + 1, self._put_after, self._position()))
            self._put_after = None

    def note_decisions(self) -> None:
        """Count what the optimizer has done since the last call; its journal ends with its process."""
        with suppress(MavstreamError):
            for each in self._client.decisions():
                if each.rule in _OPTIMIZED and (key := (str(each.at), each.what)) not in self._decisions:
                    self._decisions.add(key)
                    self._report.changes[each.rule] += 1

    def _make(self, change: str, pick: int) -> None:
        """Make a change; what is not answered, or has to be undone, is left to the end of the round."""
        if change == "pause":
            self._pause()
            return
        self._unfinished = unfinished = self._changing(change, pick)
        unfinished()
        self._unfinished = None

    def _changing(self, change: str, pick: int) -> Callable[[], object]:
        """Return what is to be done, again until the server has answered."""
        query = self._client.query(list(self._chosen)[pick % len(self._chosen)])
        match change:
            case "class":
                return partial(query.set_class, list(CLASSES)[pick // 100 % len(CLASSES)])
            case "targets":
                aimed = self._client.query(self._aimed[pick % len(self._aimed)])
                return partial(aimed.update, qos=_TARGETS[pick // 100 % len(_TARGETS)])
            case "table":
                self._put_after = self._position()
                return partial(self._client.put_table, TABLE, table_rows(len(self.puts) + 1))
            case _:
                new = bounded(self._seed, len(self.started), self._position())
                return partial(self._start, new)

    def _pause(self) -> None:
        # Noted first: if the answer is lost, the query may be paused all the same.
        start = self._first_unanswered()
        self._unfinished = partial(self._resume, start)
        self._client.query(self._paused).pause()

    def _resume(self, start: int) -> None:
        query = self._client.query(self._paused)
        query.resume()
        wait_for(lambda: query.info().state.value != "paused", "a resumed query to run")
        self.pauses.append(PausedRange(start, self._position()))

    def _start(self, new: ChaosQuery) -> None:
        # It may have been registered before: then only the answer was lost.
        known = [each.id for each in self._client.queries() if each.spec.name == new.name]
        if not known:
            class_ = list(CLASSES)[len(self.started) % len(CLASSES)]
            known = [self._client.submit(new.flow, name=new.name, class_=class_, from_="earliest").id]
        self.started[known[0]] = new

    def _first_unanswered(self) -> int:
        """Return the number of the first row that the pausable query has not answered yet.

        Not the position of the stream: a query that resumes goes on with the next rows to arrive, so rows
        that had arrived before the pause and were not read by then are missed, too.
        """
        query = self._client.query(self._paused)
        answers = query.info().results
        last = query.pull(after=answers - 2, limit=1).rows if answers else []
        return int(last[-1]["n"]) + 1 if last else 0

    def _position(self) -> int:
        return self._client.stream_info("left").position


def _done(change: Callable[[], object]) -> bool:
    try:
        change()
    except MavstreamError:
        return False
    return True
