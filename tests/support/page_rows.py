"""Rows and a query for tests of the page."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from mavstream import Client, stream

HOT = stream("readings").where("celsius > 30").project(at="at", room="room", celsius="celsius")


def rows(count: int, celsius: float = 35.0) -> list[dict[str, object]]:
    """Return rows of now, a millisecond and a degree apart."""
    start = datetime.now(UTC)
    return [
        {
            "at": (start + timedelta(milliseconds=n)).isoformat(),
            "room": f"room{n % 3}",
            "celsius": celsius + n,
        }
        for n in range(count)
    ]


@contextmanager
def feeding(client: Client) -> Iterator[None]:
    """Feed rows in the background."""
    ended = threading.Event()

    def feed() -> None:
        with Client(client.url) as own:
            while not ended.wait(0.05):
                own.append("readings", rows(20))

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
