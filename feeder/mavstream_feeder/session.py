"""A feed from start to end: streams looked up or made, rows fed, progress shown, signals heard."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mavstream import AsyncClient, Conflict, NotFound
from mavstream_feeder.feeder import Feeder
from mavstream_feeder.feeds import Options
from mavstream_feeder.inference import infer_stream
from mavstream_feeder.link import Address
from mavstream_feeder.names import FeedFile
from mavstream_feeder.reports import Report
from mavstream_feeder.sources import FileSource

if TYPE_CHECKING:
    from mavstream_protocol import StreamSpec


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
    seconds: float | None = None


async def run_feed(session: Session, *, show: bool = False) -> Report:
    """Feed until all is acked; the first Ctrl-C stops feeding, the second one everything."""
    from mavstream_feeder.display import shown

    feeder = Feeder(session.address, session.options)
    async with AsyncClient(session.address.url, token=session.address.token) as client:
        for each in session.feeds:
            spec = await stream_of(client, each, session)
            source = FileSource(each.path, spec, loop=session.loop, stamp=session.stamp, limit=session.limit)
            feeder.add(each.stream, source, each.rate)
    with stopped_by_signals(feeder):
        if not show:
            return await feeder.run(session.seconds)
        return await shown(feeder, session.seconds)


async def stream_of(client: AsyncClient, feed: FeedFile, session: Session) -> StreamSpec:
    """Return the stream that a file is for, made if it is missing and may be. Raises MavstreamError."""
    try:
        return (await client.stream_info(feed.stream)).spec
    except NotFound:
        if not session.create:
            raise
    spec = feed.spec or infer_stream(feed.stream, feed.path, session.event_time)
    try:
        return (await client.create_stream(spec)).spec
    except Conflict:
        # Somebody else made it in between.
        return (await client.stream_info(feed.stream)).spec


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
