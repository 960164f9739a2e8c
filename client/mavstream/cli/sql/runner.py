"""Runs scripts statement by statement; a SELECT shows its rows as they come."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from mavstream._client import Client
from mavstream._errors import NotFound, Timeout
from mavstream._results.results import Results
from mavstream._sql.talk import cut
from mavstream.cli.display.output import complain
from mavstream.cli.sql.interruption import Interruption
from mavstream.cli.sql.printing import Printer
from mavstream_protocol import FieldSpec, ReadFrom
from mavstream_protocol.wire.results import Gap

_LOOK_S = 0.2
"""How often a SELECT without rows looks whether it is to end, in seconds."""
_ANSWER_S = 30.0
"""How long the server may take to begin with the results, in seconds."""


class Runner:
    """Runs the statements of scripts one after the other, up to the first error."""

    def __init__(
        self, client: Client, printer: Printer, from_: ReadFrom, limit: int | None, idle: float | None
    ) -> None:
        """A SELECT begins at `from_` and ends after `limit` rows or `idle` seconds without one."""
        self.from_ = from_
        self.before_select: Callable[[], None] = lambda: None
        """Called before a SELECT begins to show rows."""
        self._client = client
        self._printer = printer
        self._limit = limit
        self._idle = idle

    def run(self, script: str) -> None:
        """Run a script; raises SqlError at the first statement that fails."""
        for statement in self._statements(script):
            for result in self._client.sql(statement):
                if result.kind == "selected":
                    self.before_select()
                    self.select(statement, result.fields)
                else:
                    self._printer.show(result)

    def select(self, sql: str, fields: Sequence[FieldSpec]) -> int:
        """Run a SELECT as a query of its own until it ends or is interrupted; returns the number of rows.

        The query is removed in any case. Raises KeyboardInterrupt after Ctrl-C.
        """
        name = f"select_{secrets.token_hex(4)}"
        query = self._client.submit(sql=sql, name=name, from_=self.from_)
        with Interruption() as interruption:
            try:
                with query.results(timeout=_LOOK_S, on_gap=_report_gap) as results:
                    rows = islice(self._until_done(results, interruption), self._limit)
                    count = self._printer.rows(fields, rows)
            finally:
                with suppress(NotFound):
                    query.delete()
        if interruption.happened():
            raise KeyboardInterrupt
        return count

    def _until_done(self, results: Results, interruption: Interruption) -> Iterator[dict[str, Any]]:
        """Yield rows until the query ends, Ctrl-C, or there was none for `idle` seconds."""
        last = time.monotonic()
        while not interruption.happened():
            try:
                for row in results:
                    last = time.monotonic()
                    yield row
                    if interruption.happened():
                        return
                return
            except Timeout:
                silent = time.monotonic() - last
                if results.schema is None and silent > _ANSWER_S:
                    raise
                if self._idle is not None and silent >= self._idle:
                    return

    def _statements(self, script: str) -> Iterator[str]:
        """Yield the statements; a script that cannot be split is one, and the server says what is wrong."""
        from mavstream_protocol import InvalidSql
        from mavstream_protocol.sql import statement_spans

        try:
            spans = list(statement_spans(script))
        except InvalidSql:
            yield script
            return
        for start, end in spans:
            yield cut(script, start, end)


def _report_gap(gap: Gap) -> None:
    complain(gap.detail)
