"""One run of `mavstream feed`: finds or creates streams, feeds, shows progress and handles signals."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from mavstream import AsyncClient, Conflict, NotFound
from mavstream_feeder.errors import InvalidSplit
from mavstream_feeder.input.feed_files import FeedFile
from mavstream_feeder.input.inference import inferred
from mavstream_feeder.input.sources import FileSource
from mavstream_feeder.input.splitting import Splitter
from mavstream_feeder.pacing.rates import AnyRate, Recorded
from mavstream_feeder.reports import Report, Stopped
from mavstream_feeder.sending.feeder import Feeder
from mavstream_feeder.sending.feeds import Options
from mavstream_feeder.sending.link import Address
from mavstream_protocol import FieldType, MavstreamError, StreamSpec
from mavstream_protocol.row_files.reading import Reading

Say: TypeAlias = Callable[[str], None]
"""Takes a sentence for people."""


def _silent(_: str) -> None:
    return


@dataclass(frozen=True, slots=True)
class Session:
    """The parameters of a run."""

    address: Address
    options: Options
    feeds: list[FeedFile]
    create: bool = False
    event_time: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further fields of streams that are created, such as their retention."""
    stamp: bool = False
    loop: bool = False
    limit: int | None = None
    skips: Mapping[str, int] = field(default_factory=dict)
    """Rows to skip at the beginning, by name of the feed."""
    seconds: float | None = None
    reading: Reading = field(default_factory=Reading)
    complete: bool = False
    """Whether streams are complete when all rows are fed: windows close, and queries finish."""
    say: Say = _silent
    """Is told what was created and what does not fit."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended: its report, and the error that stopped it, if any."""

    report: Report
    error: MavstreamError | None = None
    interrupted: bool = False
    """Whether it was interrupted by a second Ctrl-C."""


async def run_feed(session: Session, *, show: bool = False) -> Ending:
    """Feed until all is acknowledged; the first Ctrl-C stops feeding, the second one aborts.

    Raises MavstreamError for errors before the first row.
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
        finally:
            session.reading.bad_rows.close()
    if session.complete and report.stopped is Stopped.DONE:
        async with AsyncClient(session.address.url, token=session.address.token) as client:
            for name in report.streams:
                await client.complete(name)
    return Ending(replace(report, bad_rows=session.reading.bad_rows.count))


async def _prepare(feeder: Feeder, session: Session) -> None:
    sources: list[tuple[FeedFile, FileSource]] = []
    async with AsyncClient(session.address.url, token=session.address.token) as client:
        for feed in session.feeds:
            specs = [await stream_of(client, feed, stream, session) for stream in feed.streams]
            _check_same_fields(feed, specs)
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
        # A stream of a dataset may have no rows, which cannot be repeated.
        loop=session.loop and bool(feed.paths),
        stamp=session.stamp,
        limit=session.limit,
        skip=session.skips.get(feed.name, 0),
        recorded=feed.rate if isinstance(feed.rate, Recorded) else None,
        period=feed.period,
        reading=session.reading,
    )


def _begins(sources: list[tuple[FeedFile, FileSource]], session: Session) -> dict[bool, float]:
    """Return when recorded time begins: the time of the first row of all streams, which stay in step.

    Separately for columns of timestamps (False) and of seconds (True).
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
    """Return a stream's specification; creates the stream if it may. Raises MavstreamError."""
    try:
        known = (await client.stream_info(stream)).spec
    except NotFound:
        # A dataset has the specifications of its streams, so they are always created.
        if not session.create and feed.origin is None:
            raise
    else:
        if session.create and feed.spec is None:
            _tell_differences(known, feed, session)
        return known
    spec = feed.spec or _inferred(feed, stream, session)
    given = spec.model_dump(mode="json", exclude_unset=True)
    spec = StreamSpec.model_validate({**given, **session.settings, "name": stream})
    try:
        made = (await client.create_stream(spec)).spec
    except Conflict:
        # Another client created it in between.
        return (await client.stream_info(stream)).spec
    session.say(f"created stream '{stream}': {said(made)}")
    return made


def said(spec: StreamSpec) -> str:
    """Return the fields and the event time of a stream as text."""
    fields = ", ".join(f"{one.name} {one.type}{'?' if one.nullable else ''}" for one in spec.fields)
    return f"{fields}; event time: {spec.event_time or 'none, so rows have the time of their arrival'}"


def _tell_differences(known: StreamSpec, feed: FeedFile, session: Session) -> None:
    """Say where the file has other fields than a stream that exists already."""
    session.say(f"stream '{known.name}' exists: {said(known)}")
    found, _ = inferred(known.name, feed.paths[0], session.event_time or known.event_time, session.reading)
    types = {one.name: one.type for one in known.fields}
    for one in found.fields:
        if one.name in types and types[one.name] is not one.type:
            session.say(
                f"column '{one.name}' of '{feed.paths[0]}' looks like {one.type}, which the stream has as "
                f"{types[one.name]}"
            )
    if session.event_time not in (None, known.event_time):
        session.say(f"--event-time {session.event_time} has no effect on a stream that exists")


def _inferred(feed: FeedFile, stream: str, session: Session) -> StreamSpec:
    spec, remarks = inferred(stream, feed.paths[0], session.event_time, session.reading)
    for remark in remarks:
        session.say(remark)
    column = feed.rate.column if isinstance(feed.rate, Recorded) else None
    # A column of seconds since the beginning is not part of the data.
    fields = tuple(each for each in spec.fields if each.name != column or each.type is FieldType.TIMESTAMP)
    return spec if len(fields) == len(spec.fields) else spec.model_copy(update={"fields": fields})


def _check_same_fields(feed: FeedFile, specs: list[StreamSpec]) -> None:
    first = specs[0]
    for other in specs[1:]:
        if (other.fields, other.event_time) != (first.fields, first.event_time):
            raise InvalidSplit(
                f"'{feed.name}' is split into '{first.name}' and '{other.name}', whose fields or event times "
                "differ: give streams with the columns of that file"
            )


@contextmanager
def stopped_by_signals(feeder: Feeder) -> Iterator[None]:
    """Stop the feeder gracefully at the first SIGINT or SIGTERM, and cancel its task at the second."""
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
