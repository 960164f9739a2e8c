"""The overload of the demo: heavy queries of the class comfort, and more rows than they can process."""

from __future__ import annotations

import asyncio

from mavstream import AsyncClient, AsyncQuery, Flow, MavstreamError, join, stream
from mavstream_feeder.demo.queries import COMFORT
from mavstream_feeder.input.sample import STREAMS, sample_file
from mavstream_feeder.input.sources import FileSource
from mavstream_feeder.pacing.rates import constant
from mavstream_feeder.sending.feeder import Feeder
from mavstream_feeder.sending.feeds import Options
from mavstream_feeder.sending.link import Address

QUERIES = 12
ROWS_PER_SECOND = 40_000
# Large frames: the feeder shares the cores with the server, and nobody waits for these rows.
_LINGER = 0.05


class Load:
    """Queries on a stream of their own, and the feeder that floods it."""

    def __init__(self, client: AsyncClient, address: Address, prefix: str) -> None:
        self._client = client
        self._address = address
        self._prefix = prefix
        self._stream = f"{prefix}meters"
        self._queries: list[AsyncQuery] = []
        self._created = False
        self._feed: asyncio.Task[object] | None = None

    async def start(self) -> None:
        """Submit the queries and flood their stream, unless that was done."""
        if self._created:
            return
        spec = STREAMS["power"].model_copy(update={"name": self._stream})
        await self._client.create_stream(spec)
        self._created = True
        for number in range(QUERIES):
            name = f"{self._prefix}meters_{number + 1}"
            flow = _differences(self._stream, number)
            self._queries.append(await self._client.submit(flow, name=name, class_=COMFORT.name))
        feeder = Feeder(self._address, Options(linger=_LINGER))
        source = FileSource(sample_file("power"), spec, loop=True, stamp=True)
        feeder.add(self._stream, source, constant(ROWS_PER_SECOND))
        self._feed = asyncio.create_task(feeder.run())

    async def stop(self, *, remove: bool = True) -> None:
        """Feed no more, and remove queries and stream with all that waits there.

        With `remove` it raises MavstreamError if the feeder failed.
        """
        ended: object = None
        if self._feed is not None:
            self._feed.cancel()
            (ended,) = await asyncio.gather(self._feed, return_exceptions=True)
            self._feed = None
        if not remove or not self._created:
            return
        for query in self._queries:
            await query.delete()
        self._queries.clear()
        await self._client.delete_stream(self._stream)
        self._created = False
        if isinstance(ended, MavstreamError):
            raise ended


def _differences(name: str, number: int) -> Flow:
    """Return a query that compares each reading with those of the same device nearby in time.

    Each has a condition of its own, so that queries share nothing.
    """
    pairs = join(
        stream(name).where(f"watts > {number}"),
        stream(name),
        on=["home", "device"],
        within="100ms",
        compute={"device": "l.device", "at": "l.at", "change": "l.watts - r.watts"},
    )
    return pairs.window("1s").by("device").agg(mean="avg(change)", most="max(change)", n="count(*)")
