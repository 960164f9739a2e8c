"""Subscriptions: the sequence of messages that one subscriber of a query's results gets."""

from __future__ import annotations

from types import TracebackType

from pydantic import BaseModel

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.schema import Schema
from mavstream_protocol.streams import field_specs
from mavstream_protocol.wire.resources import ActualState
from mavstream_protocol.wire.results import Closed, Gap, GapReason, OnLag, Opened, Replaced
from mavstream_server.log import GapCause, GapError
from mavstream_server.results.encoding import ResultFormat
from mavstream_server.results.service import QueryResults, ResultService

LATEST = "latest"
"""The `after` that starts with the next new row."""

_RESTARTED = (
    "the query was restarted: rows in progress may be lost, windows that were open may not be answered, and "
    "after a loss of power offsets up to here may stand for other rows than before"
)


class Lagging(MavstreamError):
    """A subscriber fell behind the log and is disconnected, as it had asked."""

    code = "lagging"


class Subscription:
    """A cursor on a query's results for one subscriber.

    `next` returns message after message and waits for the next one; after `closed` it returns None. Nothing
    is buffered here: a slow subscriber reads later from the log, and gets a gap for rows that were removed.
    """

    def __init__(
        self,
        service: ResultService,
        results: QueryResults,
        after: int | str | None = None,
        format_: ResultFormat = ResultFormat.ROWS,
        on_lag: OnLag = OnLag.GAP,
    ) -> None:
        """Subscribe; raises OffsetAhead, TooManySubscribers."""
        self._service = service
        self._results = results
        self._format = format_
        self._on_lag = on_lag
        latest = after == LATEST
        self.position = (
            results.end if latest else results.position_after(None if after is None else int(after))
        )
        """The offset of the next row."""
        self.epoch, self.revision, self._schema = (
            results.origin if latest else results.origin_before(self.position)
        )
        """The last epoch and revision that the subscriber was told of."""
        self._opened = False
        self._closed = False
        service.subscribe(results)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._service.unsubscribe(self._results)

    async def next(self) -> str | bytes | None:
        """Wait for the next message, text or binary; None after the last. Raises Lagging."""
        if self._closed:
            return None
        while True:
            # Taken before the check, so that news in between is not missed.
            news = self._results.news
            message = await self._service.in_turn(self._results, self.next_now)
            if message is not None:
                self._service.counters.messages += 1
                return message
            await news.wait()

    def next_now(self) -> str | bytes | None:
        """Return the next message if there is one, None after the last. Raises Lagging."""
        if self._closed:
            return None
        if not self._opened:
            self._opened = True
            return self._opening()
        query, results = self._results.query, self._results
        # Read before the log: afterwards no row of an older epoch, or of an ended query, is appended.
        epoch, revision, final = query.epoch, query.revision, query.final
        if results.removed:
            return self._closing(final or ActualState.STOPPED, "the query was removed")
        try:
            chunk = results.encoded(self.position, self._format)
        except GapError as gap:
            return self._lagged(gap) if gap.cause is GapCause.RETENTION else self._damaged(gap)
        if chunk is None:
            if self.position < results.end:
                results.look()  # the rest is not on disk yet
                return None
            if epoch > self.epoch > 0:
                return self._restarted(epoch)
            if revision > self.revision:
                return self._replaced(revision, query.schema)
            self.epoch = epoch  # the query had not started when this was opened
            return None if final is None else self._closing(final, query.reason or "")
        epoch, revision, schema = chunk.origin
        if epoch > self.epoch > 0:
            return self._restarted(epoch)
        if revision > self.revision:
            return self._replaced(revision, schema)
        self.position, self.epoch = chunk.stop, epoch
        self._service.counters.rows += chunk.stop - chunk.start
        return chunk.message

    def _opening(self) -> str:
        fields, id_ = field_specs(self._schema), self._results.query.id
        return _text(Opened(query=id_, fields=fields, next=self.position, epoch=self.epoch))

    def _replaced(self, revision: int, schema: Schema) -> str | None:
        """Return the message about a seam; None until the server has heard of it from the engine."""
        lacking = self._results.query.not_retained(revision)
        if lacking is None:
            return None
        self.revision = revision
        return _text(
            Replaced(
                offset=self.position,
                epoch=self.epoch,
                revision=revision,
                fields=field_specs(schema),
                not_retained=lacking,
            )
        )

    def _restarted(self, epoch: int) -> str:
        self.epoch = epoch
        return _text(
            Gap(
                start=self.position,
                stop=self.position,
                epoch=epoch,
                reason=GapReason.RESTART,
                detail=_RESTARTED,
            )
        )

    def _lagged(self, gap: GapError) -> str:
        self._service.count_gap(gap.stop - gap.start)
        detail = (
            f"rows {gap.start} to {gap.stop - 1} were removed before they were read: read faster, "
            "or retain more results"
        )
        if self._on_lag is OnLag.DISCONNECT:
            self._service.counters.disconnected += 1
            raise Lagging(detail)
        return self._gap(gap, GapReason.RETENTION, detail)

    def _damaged(self, gap: GapError) -> str:
        self._service.count_gap(gap.stop - gap.start)
        detail = (
            f"rows {gap.start} to {gap.stop - 1} ({gap.stop - gap.start}) are lost: the files that held them "
            "are damaged"
        )
        return self._gap(gap, GapReason.DAMAGE, detail)

    def _gap(self, gap: GapError, reason: GapReason, detail: str) -> str:
        self.position, self.epoch = gap.stop, self._results.origin_before(gap.stop).epoch
        return _text(Gap(start=gap.start, stop=gap.stop, epoch=self.epoch, reason=reason, detail=detail))

    def _closing(self, state: ActualState, detail: str) -> str:
        self._closed = True
        return _text(Closed(state=state.value, detail=detail))


def _text(message: BaseModel) -> str:
    return message.model_dump_json()
