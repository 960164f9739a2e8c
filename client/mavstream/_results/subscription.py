"""Reading a query's answers: what was read, what comes next, and how to go on after a lost connection."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from mavstream._errors import ConnectionLost, GapFound, GapWarning, QueryFailed, Timeout
from mavstream._transport.retry import Retry, open_again
from mavstream._transport.steps import Open, Shut, Talk, quote, receive
from mavstream_protocol import Field, Schema
from mavstream_protocol.tuples import arrow_schema, decode_message, rows_of
from mavstream_protocol.wire.envelope import unseal
from mavstream_protocol.wire.results import Closed, Gap, GapReason, OnLag, Opened, RowsHeader, to_subscriber

OnGap: TypeAlias = Literal["warn", "raise", "ignore"] | Callable[[Gap], None]
After: TypeAlias = int | Literal["latest"] | None


class Subscription:
    """A place in a query's answers, kept across connections. Rows are given out one by one or in batches.

    Invariant: `offset` is that of the last row given out, and the next one given out is the first behind it
    that is still there; gaps are told between the two.
    """

    def __init__(
        self, query: str, after: After, on_gap: OnGap, on_lag: OnLag, patience: float, retry: Retry
    ) -> None:
        self.query = query
        self.schema: Schema | None = None
        self.epoch = 0
        self.closed: Closed | None = None
        self._after = after
        self._on_gap = on_gap
        self._on_lag = on_lag
        self._patience = patience
        """How long the first message of a connection may take, in seconds."""
        self._retry = retry
        self._open = False
        # The offset of the next message's first row; None until the server has said where it begins.
        self._next: int | None = None
        # What was received and not given out: a batch, its rows once they were asked for, how many are gone.
        self._batch: pa.RecordBatch | None = None
        self._rows: list[dict[str, Any]] | None = None
        self._given = 0

    @property
    def offset(self) -> int | None:
        """The offset of the last row that was given out, or that reading began after; None if not known."""
        if self._next is None:
            return self._after if isinstance(self._after, int) else None
        return self._next - self._left - 1

    def pop_row(self) -> dict[str, Any] | None:
        """Give out the next row that was received; None if there is none."""
        if not self._left:
            return None
        if self._rows is None:
            self._rows = rows_of(self._batch)
        self._given += 1
        return self._rows[self._given - 1]

    def pop_batch(self, most: int | None = None) -> pa.RecordBatch | None:
        """Give out the received rows, at most so many; None if there are none."""
        if not self._left or self._batch is None:
            return None
        count = self._left if most is None else min(self._left, most)
        batch = self._batch.slice(self._given, count)
        self._given += count
        return batch

    def fill(self, timeout: float | None) -> Talk[bool]:
        """Wait until there are rows to give out, or the query has ended, which is False. Raises Timeout."""
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
        """Gather rows until there are so many, so much time has passed, or the query has ended."""
        until = None if timeout is None else time.monotonic() + timeout
        batches: list[pa.RecordBatch] = []
        rows = 0
        while limit is None or rows < limit:
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
        return pa.Table.from_batches(batches, None if self.schema is None else arrow_schema(self.schema))

    def shut(self) -> Talk[None]:
        """Close the connection; the place is kept."""
        self._open = False
        yield Shut()

    @property
    def _left(self) -> int:
        return 0 if self._batch is None else int(self._batch.num_rows) - self._given

    def _connect(self) -> Talk[None]:
        after = self._after if self._next is None else self._next - 1
        params = {"format": "arrow", "on_lag": self._on_lag.value}
        if after is not None:
            params["after"] = str(after)
        yield Open(f"/v1/queries/{quote(self.query)}/results", params)
        message = yield from receive(self._patience)
        if message is None:
            raise Timeout(f"the server did not open the results of query '{self.query}'")
        opened = to_subscriber.validate_json(message)
        if not isinstance(opened, Opened):
            raise ConnectionLost(f"expected 'opened', came '{opened.type}'")
        self.schema = Schema(tuple(Field(each.name, each.type, each.nullable) for each in opened.fields))
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
            yield from self.shut()
            if event.state == "failed":
                raise QueryFailed(self.query, event.detail)
        elif isinstance(event, Gap):
            self._pass(event)

    def _take_rows(self, message: bytes) -> None:
        assert self.schema is not None
        assert self._next is not None
        head, payload = unseal(message)
        header = RowsHeader.model_validate_json(head)
        batch = decode_message(self.schema, payload, arrow_schema(self.schema))
        # Rows that were read already come again only if the server begins a message before `after`.
        batch = batch.slice(min(max(0, self._next - header.offset), batch.num_rows))
        self._batch, self._rows, self._given = batch, None, 0
        self._next = max(self._next, header.offset + header.count)
        self.epoch = header.epoch

    def _pass(self, gap: Gap) -> None:
        """Step over a gap, telling once what is missing."""
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
            # Past the frames of the clients, so that the warning names the caller's line.
            warnings.warn(f"results of query '{self.query}': {gap.detail}", GapWarning, stacklevel=6)
