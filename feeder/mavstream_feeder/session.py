"""A feed from start to end: streams looked up or made, rows fed, progress shown, signals heard."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from mavstream import AsyncClient, Conflict, NotFound
from mavstream_feeder.errors import InvalidSplit
from mavstream_feeder.input.feed_files import FeedFile
from mavstream_feeder.input.inference import infer_stream
from mavstream_feeder.input.sources import FileSource
from mavstream_feeder.input.splitting import Splitter
from mavstream_feeder.pacing.rates import AnyRate, Recorded
from mavstream_feeder.reports import Report
from mavstream_feeder.sending.feeder import Feeder
from mavstream_feeder.sending.feeds import Options
from mavstream_feeder.sending.link import Address
from mavstream_protocol import FieldType, MavstreamError, StreamSpec


@dataclass(frozen=True, slots=True)
class Session:
    """What a feed was asked to do."""

    address: Address
    options: Options
    feeds: list[FeedFile]
    create: bool = False
    event_time: str | None = None
    stamp: bool = False
    loop: bool = False
    limit: int | None = None
    skips: Mapping[str, int] = field(default_factory=dict)
    """Rows to leave out at the begin, by name of the feed."""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a feed ended: what was done, and what stopped it if it was not the end."""

    report: Report
    error: MavstreamError | None = None
    interrupted: bool = False
    """Whether it was cut short by a second Ctrl-C."""


async def run_feed(session: Session, *, show: bool = False) -> Ending:
    """Feed until all is acked; the first Ctrl-C stops feeding, the second one everything.

    What goes wrong before the first row raises MavstreamError.
    """
    from mavstream_feeder.display import shown

    feeder = Feeder(session.address, session.options)
    await _prepare(feeder, session)
    with stopped_by_signals(feeder):
        try:
            report = await (shown(feeder, session.seconds) if show else feeder.run(session.seconds))
        except MavstreamError as error:
            return Ending(feeder.report(), error)
        except asyncio.CancelledError:
            return Ending(feeder.report(), interrupted=True)
    return Ending(report)


async def _prepare(feeder: Feeder, session: Session) -> None:
    sources: list[tuple[FeedFile, FileSource]] = []
    async with AsyncClient(session.address.url, token=session.address.token) as client:
        for feed in session.feeds:
            specs = [await stream_of(client, feed, stream, session) for stream in feed.streams]
            _check_alike(feed, specs)
            sources.append((feed, _source(feed, specs[0], session)))
    begins = _begins(sources, session)
    for feed, source in sources:
        rate = _from(feed, begins.get(source.counts_seconds), session)
        if feed.branches:
            feeder.add_split(feed.name, source, rate, Splitter(feed.branches, source.spec.schema()))
        else:
            feeder.add(feed.name, source, rate)


def _source(feed: FeedFile, spec: StreamSpec, session: Session) -> FileSource:
    return FileSource(
        feed.paths,
        spec,
        # A stream of a dataset may have no rows, which cannot go round.
        loop=session.loop and bool(feed.paths),
        stamp=session.stamp,
        limit=session.limit,
        skip=session.skips.get(feed.name, 0),
        recorded=feed.rate if isinstance(feed.rate, Recorded) else None,
        period=feed.period,
    )


def _begins(sources: list[tuple[FeedFile, FileSource]], session: Session) -> dict[bool, float]:
    """Return where recorded time begins, apart for points in time and for seconds.

    Streams that were recorded together stay together, so it is the first row of all.
    """
    found: dict[bool, list[float]] = {}
    for feed, source in sources:
        if isinstance(feed.rate, Recorded) and (session.skips or not source.counts_seconds):
            begin = source.begin()
            if begin is not None:
                found.setdefault(source.counts_seconds, []).append(begin)
    return {seconds: min(begins) for seconds, begins in found.items()}


def _from(feed: FeedFile, begin: float | None, session: Session) -> AnyRate:
    if not isinstance(feed.rate, Recorded):
        return feed.rate
    return replace(feed.rate, origin=begin if feed.origin is None or session.skips else feed.origin)


async def stream_of(client: AsyncClient, feed: FeedFile, stream: str, session: Session) -> StreamSpec:
    """Return a stream that a file is for, made if it is missing and may be. Raises MavstreamError."""
    try:
        return (await client.stream_info(stream)).spec
    except NotFound:
        # A dataset says what its streams are, so they are always made.
        if not session.create and feed.origin is None:
            raise
    spec = feed.spec or _inferred(feed, stream, session.event_time)
    try:
        return (await client.create_stream(spec.model_copy(update={"name": stream}))).spec
    except Conflict:
        # Somebody else made it in between.
        return (await client.stream_info(stream)).spec


def _inferred(feed: FeedFile, stream: str, event_time: str | None) -> StreamSpec:
    spec = infer_stream(stream, feed.paths[0], event_time)
    column = feed.rate.column if isinstance(feed.rate, Recorded) else None
    # Seconds since the begin of a recording are about the recording, not about what was seen.
    fields = tuple(each for each in spec.fields if each.name != column or each.type is FieldType.TIMESTAMP)
    return spec if len(fields) == len(spec.fields) else spec.model_copy(update={"fields": fields})


def _check_alike(feed: FeedFile, specs: list[StreamSpec]) -> None:
    first = specs[0]
    for other in specs[1:]:
        if (other.fields, other.event_time) != (first.fields, first.event_time):
            raise InvalidSplit(
                f"'{feed.name}' is split into '{first.name}' and '{other.name}', whose fields or event times "
                "differ: streams of one file have the columns of that file"
            )


@contextmanager
def stopped_by_signals(feeder: Feeder) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM stop the feeder gently and the second one cancel its task."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    asked = False

    def stop() -> None:
        nonlocal asked
        if asked:
            task.cancel()
        asked = True
        feeder.stop()

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
