"""The producer: a process that feeds both streams until it is told to stop, and gets an ack for every row."""

from __future__ import annotations

import time
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection

from chaos.server import PATIENCE
from chaos.workload import STREAMS, rows
from mavstream import Client, Feed, Retry, Timeout

_PROCESSES = get_context("spawn")
_FRAME = 10
"""Rows per frame and stream."""
_INTERVAL = 0.02
_RETRY = Retry(first=0.02, most=0.2, patience=PATIENCE)


class Producing:
    """The process of the producer."""

    def __init__(self, url: str) -> None:
        self._connection, other = _PROCESSES.Pipe()
        self._process = _PROCESSES.Process(target=_produce, args=(url, other), daemon=True)
        self._process.start()
        other.close()
        # The rounds begin when everybody is connected.
        self._receive()

    def stop(self) -> int:
        """Stop feeding; returns how many rows of each stream were acked, which are all that were sent."""
        self._connection.send(None)
        return self._receive()

    def _receive(self) -> int:
        if not self._connection.poll(2 * PATIENCE):
            raise TimeoutError("the producer does not get its acks")
        found = self._connection.recv()
        if isinstance(found, str):
            raise RuntimeError(f"the producer failed: {found}")
        return int(found)

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()
        self._connection.close()


def _produce(url: str, connection: Connection) -> None:
    try:
        with Client(url, retry=_RETRY) as client, client.feed("chaos", STREAMS) as feed:
            connection.send(0)
            connection.send(_feed(feed, connection))
    except Exception as error:
        connection.send(repr(error))


def _feed(feed: Feed, connection: Connection) -> int:
    sent = 0
    while not connection.poll(_INTERVAL):
        for stream in STREAMS:
            # The rows of a send that timed out are queued, and are acked by a later call.
            with suppress(Timeout):
                feed.send(stream, rows(stream, sent, sent + _FRAME))
        sent += _FRAME
    end = time.monotonic() + PATIENCE
    while True:
        try:
            feed.flush()
        except Timeout:
            if time.monotonic() > end:
                raise
        else:
            return sent
