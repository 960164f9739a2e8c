"""Feed two streams and read the results of their join at the same time, with the asyncio client."""

import asyncio

from mavstream import AsyncClient, AsyncQuery, stream
from mavstream.testing import start_server

FIELDS = {
    "readings": [{"name": "home", "type": "int"}, {"name": "temperature", "type": "float"}],
    "doors": [{"name": "home", "type": "int"}, {"name": "door", "type": "string"}],
}


async def feed(client: AsyncClient) -> None:
    """Send rows of both streams over one websocket, then mark the streams as complete."""
    async with client.feed("sensors", ["readings", "doors"]) as sensors:
        await sensors.send("readings", [{"home": 1, "temperature": 35.0}, {"home": 2, "temperature": 20.0}])
        await sensors.send("doors", {"home": [1, 2], "door": ["front", "back"]})
    for name in FIELDS:
        await client.complete(name)


async def read(query: AsyncQuery) -> None:
    """Print the results until the query has ended."""
    async with query.results(timeout=10) as results:
        async for row in results:
            print(row)


async def main(url: str) -> None:
    """Feed and read at the same time."""
    async with AsyncClient(url) as client:
        for name, fields in FIELDS.items():
            await client.create_stream(name=name, fields=fields)
        hot = stream("readings").where("temperature > 30")
        columns = {"home": "l.home", "temperature": "l.temperature", "door": "r.door"}
        pairs = hot.join(stream("doors"), on=["home"], within="1m", compute=columns)
        query = await client.submit(pairs, name="hot_and_open")
        await asyncio.gather(feed(client), read(query))


with start_server() as url:
    asyncio.run(main(url))
