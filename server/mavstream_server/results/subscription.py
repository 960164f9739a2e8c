"""Subscriptions: what one subscriber of a query's results is told, message by message."""

from __future__ import annotations

from types import TracebackType

from pydantic import BaseModel

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.streams import field_specs
from mavstream_protocol.wire.resources import ActualState
from mavstream_protocol.wire.results import Closed, Gap, GapReason, OnLag, Opened
from mavstream_server.log import GapError
from mavstream_server.results.encoding import ResultFormat
from mavstream_server.results.service import QueryResults, ResultService

LATEST = "latest"
"""Start with the rows to come."""

_RESTARTED = (
    "the query began anew with empty state: what it was working on is lost, and windows that were open "
    "are not answered"
)


class Lagging(MavstreamError):
    """A subscriber fell behind the log and had asked to be disconnected then."""

    code = "lagging"


class Subscription:
    """A cursor on a query's results for one subscriber.

    `next` gives message after message and waits where there is none; after `closed` it gives None. Nothing
    is buffered here: while the subscriber is slow the log goes on, and later it is told of a gap.
    """

    def __init__(
        self,
        feeds: ResultService,
        feed: QueryResults,
        after: int | str | None = None,
        format_: ResultFormat = ResultFormat.ROWS,
        on_lag: OnLag = OnLag.GAP,
    ) -> None:
        """Subscribe; raises OffsetAhead, TooManySubscribers."""
        self._feeds = feeds
        self._feed = feed
        self._format = format_
        self._on_lag = on_lag
        latest = after == LATEST
        self.position = feed.end if latest else feed.position_after(None if after is None else int(after))
        """The offset of the next row."""
        self.epoch = feed.query.epoch if latest else feed.epoch_before(self.position)
        """The epoch that the subscriber knows of."""
        self._opened = False
        self._closed = False
        feeds.enter(feed)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._feeds.leave(self._feed)

    async def next(self) -> str | bytes | None:
        """Wait for the next message, text or binary; None after the last. Raises Lagging."""
        if self._closed:
            return None
        while True:
            # Taken before the look, so that what comes in between is not slept through.
            news = self._feed.news
            message = self.next_now()
            if message is not None:
                self._feeds.counters.messages += 1
                return message
            await news.wait()

    def next_now(self) -> str | bytes | None:
        """Return the next message if there is one. Raises Lagging."""
        if not self._opened:
            self._opened = True
            return self._opening()
        query, feed = self._feed.query, self._feed
        # Read ahead of the log: no row of an older epoch, or of a query that ended, comes behind these.
        epoch, final = query.epoch, query.final
        if feed.removed:
            return self._closing(final or ActualState.STOPPED, "the query was removed")
        try:
            portion = feed.encoded(self.position, self._format)
        except GapError as gap:
            return self._lagged(gap)
        if portion is None:
            if epoch > self.epoch > 0:
                return self._restarted(epoch)
            self.epoch = epoch  # of a query that had not begun when this was opened
            return None if final is None else self._closing(final, query.reason or "")
        if portion.epoch > self.epoch > 0:
            return self._restarted(portion.epoch)
        self.position, self.epoch = portion.stop, portion.epoch
        self._feeds.counters.rows += portion.stop - portion.start
        return portion.message

    def _opening(self) -> str:
        query = self._feed.query
        fields = field_specs(query.schema)
        return _text(Opened(query=query.id, fields=fields, next=self.position, epoch=self.epoch))

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
        self._feeds.count_gap(gap.stop - gap.start)
        detail = (
            f"rows {gap.start} to {gap.stop - 1} were removed before they were read: read faster, "
            "or keep more results"
        )
        if self._on_lag is OnLag.DISCONNECT:
            self._feeds.counters.disconnected += 1
            raise Lagging(detail)
        self.position, self.epoch = gap.stop, self._feed.epoch_before(gap.stop)
        reason = GapReason.RETENTION
        return _text(Gap(start=gap.start, stop=gap.stop, epoch=self.epoch, reason=reason, detail=detail))

    def _closing(self, state: ActualState, detail: str) -> str:
        self._closed = True
        return _text(Closed(state=state.value, detail=detail))


def _text(message: BaseModel) -> str:
    return message.model_dump_json()
