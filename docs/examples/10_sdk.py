"""A session with the SDK: start a server, create a stream, build a query, and read its results."""

from mavstream import Client, stream
from mavstream.testing import start_server

READINGS = [
    {"at": "2026-01-01T12:00:00Z", "room": "kitchen", "temperature": 31.0},
    {"at": "2026-01-01T12:00:01Z", "room": "attic", "temperature": 18.5},
    {"at": "2026-01-01T12:00:02Z", "room": "kitchen", "temperature": 33.0},
    {"at": "2026-01-01T12:00:12Z", "room": "attic", "temperature": 40.0},
]

with start_server() as url, Client(url) as client:
    client.create_stream(
        name="readings",
        fields=[
            {"name": "at", "type": "timestamp"},
            {"name": "room", "type": "string"},
            {"name": "temperature", "type": "float"},
        ],
        event_time="at",
    )
    hot = stream("readings").where("temperature > 30")
    means = hot.window("10s").by("room").agg(n="count(*)", mean="avg(temperature)")
    query = client.submit(means, name="hot_rooms")

    client.append("readings", READINGS)
    client.complete("readings")

    for row in query.results(timeout=10):
        print(row["room"], row["n"], row["mean"], row["window_start"])
    print(query.info().state)
