"""A subscription to a query's results, which resumes at the next row after a lost connection."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from mavstream._errors import ConnectionLost, GapFound, GapWarning, QueryFailed, Timeout
from mavstream._transport.retry import Retry, open_again
from mavstream._transport.steps import Close, Open, Talk, quote, receive
from mavstream_protocol import Field, Schema
from mavstream_protocol.streams import FieldSpec
from mavstream_protocol.tuples import arrow_schema, decode_message, rows_of
from mavstream_protocol.wire.envelope import unseal
from mavstream_protocol.wire.results import (
    Closed,
    Gap,
    GapReason,
    OnLag,
    Opened,
    Replaced,
    RowsHeader,
    to_subscriber,
)
from mavstream_protocol.wire.seams import NotRetained

OnGap: TypeAlias = Literal["warn", "raise", "ignore"] | Callable[[Gap], None]
After: TypeAlias = int | Literal["latest"] | None


class Subscription:
    """A position in a query's results, kept across connections. Rows are handed out singly or in batches.

    Invariant: `offset` is that of the last row handed out, and the next one handed out is the first behind it
    that the server still has; gaps are reported between the two.
    """

    def __init__(
        self,
        query: str,
        after: After,
        on_gap: OnGap,
        on_lag: OnLag,
        timeout: float,
        retry: Retry,
        *,
        datetimes: bool = False,
    ) -> None:
        self._datetimes = datetimes
        self.query = query
        self.schema: Schema | None = None
        self.epoch = 0
        self.revision: int | None = None
        self.not_retained: tuple[NotRetained, ...] = ()
        self.closed: Closed | None = None
        self._after = after
        self._on_gap = on_gap
        self._on_lag = on_lag
        self._timeout = timeout
        """Seconds to wait for the first message of a connection."""
        self._retry = retry
        self._open = False
        # Offset of the next message's first row; None until the server has said where it begins.
        self._next: int | None = None
        # What was received: a batch, its rows as dicts once they are needed, and how many were handed out.
        self._batch: pa.RecordBatch | None = None
        self._rows: list[dict[str, Any]] | None = None
        self._handed_out = 0

    @property
    def offset(self) -> int | None:
        """Offset of the last row that was handed out, or that reading began after; None if not known."""
        if self._next is None:
            return self._after if isinstance(self._after, int) else None
        return self._next - self._left - 1

    def pop_row(self) -> dict[str, Any] | None:
        """Return the next row that was received; None if there is none."""
        if not self._left or self._batch is None:
            return None
        if self._rows is None:
            self._rows = self._batch.to_pylist() if self._datetimes else rows_of(self._batch)
        self._handed_out += 1
        return self._rows[self._handed_out - 1]

    def pop_batch(self, most: int | None = None) -> pa.RecordBatch | None:
        """Return the received rows, at most `most`; None if there are none."""
        if not self._left or self._batch is None:
            return None
        count = self._left if most is None else min(self._left, most)
        batch = self._batch.slice(self._handed_out, count)
        self._handed_out += count
        return batch

    def fill(self, timeout: float | None) -> Talk[bool]:
        """Wait for rows; False if the query has ended instead. Raises Timeout."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self._left:
            if self.closed is not None:
                return False
            try:
                if not self._open:
                    yield from self._connect()
                left = None if until is None else max(0.0, until - time.monotonic())
                message = yield from receive(left)
            except ConnectionLost as lost:
                self._open = False
                yield from open_again(self._connect, lost, self._retry)
                continue
            if message is None:
                raise Timeout(f"query '{self.query}' gave no row within {timeout:g} s")
            yield from self._take(message)
        return True

    def collect(self, limit: int | None, timeout: float | None) -> Talk[pa.Table]:
        """Collect rows until there are `limit`, `timeout` seconds have passed, or the query has ended.

        Also until the columns change, because the query's plan was replaced.
        """
        until = None if timeout is None else time.monotonic() + timeout
        batches: list[pa.RecordBatch] = []
        rows = 0
        while limit is None or rows < limit:
            if batches and self._left and self._batch is not None and self._batch.schema != batches[0].schema:
                break  # rows of another plan, which the next call returns
            batch = self.pop_batch(None if limit is None else limit - rows)
            if batch is not None:
                batches.append(batch)
                rows += batch.num_rows
                continue
            try:
                more = yield from self.fill(None if until is None else max(0.0, until - time.monotonic()))
            except Timeout:
                if self.schema is None:
                    raise
                break
            if not more:
                break
        if batches:
            return pa.Table.from_batches(batches)
        return pa.Table.from_batches(batches, None if self.schema is None else arrow_schema(self.schema))

    def close(self) -> Talk[None]:
        """Close the connection; the position is kept."""
        self._open = False
        yield Close()

    @property
    def _left(self) -> int:
        return 0 if self._batch is None else int(self._batch.num_rows) - self._handed_out

    def _connect(self) -> Talk[None]:
        after = self._after if self._next is None else self._next - 1
        params = {"format": "arrow", "on_lag": self._on_lag.value}
        if after is not None:
            params["after"] = str(after)
        yield Open(f"/v1/queries/{quote(self.query)}/results", params)
        message = yield from receive(self._timeout)
        if message is None:
            raise Timeout(f"the server did not open the results of query '{self.query}'")
        opened = to_subscriber.validate_json(message)
        if not isinstance(opened, Opened):
            raise ConnectionLost(f"expected 'opened' from the server, got '{opened.type}'")
        self.schema = _schema(opened.fields)
        if self._next is None:
            self._next, self.epoch = opened.next, opened.epoch
        self._open = True

    def _take(self, message: str | bytes) -> Talk[None]:
        if isinstance(message, bytes):
            self._take_rows(message)
            return
        event = to_subscriber.validate_json(message)
        if isinstance(event, Closed):
            self.closed = event
            yield from self.close()
            if event.state == "failed":
                raise QueryFailed(self.query, event.detail)
        elif isinstance(event, Gap):
            self._skip(event)
        elif isinstance(event, Replaced):
            self.revision, self.not_retained = event.revision, event.not_retained
            self.schema = _schema(event.fields)

    def _take_rows(self, message: bytes) -> None:
        assert self.schema is not None
        assert self._next is not None
        head, payload = unseal(message)
        header = RowsHeader.model_validate_json(head)
        batch = decode_message(self.schema, payload, arrow_schema(self.schema))
        # A message may begin ahead of `after`, with rows that were read already.
        batch = batch.slice(min(max(0, self._next - header.offset), batch.num_rows))
        self._batch, self._rows, self._handed_out = batch, None, 0
        self._next = max(self._next, header.offset + header.count)
        self.epoch = header.epoch

    def _skip(self, gap: Gap) -> None:
        """Continue behind a gap, and report it once."""
        assert self._next is not None
        known = gap.epoch <= self.epoch if gap.reason is GapReason.RESTART else gap.stop <= self._next
        self._next = max(self._next, gap.stop)
        self.epoch = max(self.epoch, gap.epoch)
        if known or self._on_gap == "ignore":
            return
        if callable(self._on_gap):
            self._on_gap(gap)
        elif self._on_gap == "raise":
            raise GapFound(gap)
        else:
            # Past the stack frames of the clients, so that the warning names the caller's line.
            warnings.warn(f"results of query '{self.query}': {gap.detail}", GapWarning, stacklevel=6)


def _schema(fields: Iterable[FieldSpec]) -> Schema:
    return Schema(tuple(Field(each.name, each.type, each.nullable) for each in fields))
