"""Runs scripts statement by statement; a SELECT shows its rows as they come."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from mavstream._client import Client
from mavstream._errors import NotFound, Timeout
from mavstream._results.results import Results
from mavstream._sql.talk import cut
from mavstream.cli.output import complain
from mavstream.cli.sql.printing import Printer
from mavstream_protocol import ReadFrom
from mavstream_protocol.wire.results import Gap


class Runner:
    """Runs the statements of scripts one after the other, up to the first error."""

    def __init__(
        self, client: Client, printer: Printer, from_: ReadFrom, limit: int | None, idle: float | None
    ) -> None:
        """A SELECT begins at `from_` and ends after `limit` rows or `idle` seconds without one."""
        self.from_ = from_
        self._client = client
        self._printer = printer
        self._limit = limit
        self._idle = idle

    def run(self, script: str) -> None:
        """Run a script; raises SqlError at the first statement that fails."""
        for statement in self._statements(script):
            for result in self._client.sql(statement):
                if result.kind == "selected":
                    self.select(statement, [field.name for field in result.fields])
                else:
                    self._printer.show(result)

    def select(self, sql: str, columns: list[str]) -> int:
        """Run a SELECT as a query of its own until it ends or is interrupted; returns the number of rows.

        The query is removed in any case.
        """
        name = f"select_{secrets.token_hex(4)}"
        query = self._client.submit(sql=sql, name=name, from_=self.from_)
        try:
            with query.results(timeout=self._idle, on_gap=_report_gap) as results:
                return self._printer.rows(columns, islice(_until_idle(results), self._limit))
        finally:
            with suppress(NotFound):
                query.delete()

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


def _until_idle(results: Results) -> Iterator[dict[str, Any]]:
    try:
        yield from results
    except Timeout:
        # Without a schema the server never answered, which is an error.
        if results.schema is None:
            raise


def _report_gap(gap: Gap) -> None:
    complain(gap.detail)
