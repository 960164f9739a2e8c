"""The producers: processes that feed streams until they are told to stop, and get an ack for every row."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

from chaos.processes import PROCESSES
from chaos.workload import PRODUCERS, Acked, Part, rows
from mavstream import Client, Feed, Retry, Timeout

_PATIENCE = 60.0
_FRAME = 10
"""Rows per frame of a stream that has one producer."""
_INTERVAL = 0.02
_RETRY = Retry(first=0.02, most=0.2, patience=_PATIENCE)


class Producers:
    """The processes of all producers."""

    def __init__(self, url: str) -> None:
        self._producers = [_Producer(url, name, parts) for name, parts in PRODUCERS.items()]
        # The watermark waits for a producer from its first rows on, so all send some before they go on.
        for each in self._producers:
            each.receive()
        for each in self._producers:
            each.connection.send(None)

    def stop(self) -> Acked:
        """Stop feeding; returns how many rows of each part were acked, which are all that were sent."""
        for each in self._producers:
            each.connection.send(None)
        return {part: count for each in self._producers for part, count in each.receive().items()}

    def close(self) -> None:
        """End the processes."""
        for each in self._producers:
            each.close()


class _Producer:
    def __init__(self, url: str, name: str, parts: Sequence[Part]) -> None:
        self.connection, other = PROCESSES.Pipe()
        self._process = PROCESSES.Process(target=_produce, args=(url, name, parts, other), daemon=True)
        self._process.start()
        other.close()

    def receive(self) -> dict[Part, int]:
        if not self.connection.poll(2 * _PATIENCE):
            raise TimeoutError("a producer does not get its acks")
        found = self.connection.recv()
        if isinstance(found, str):
            raise RuntimeError(f"a producer failed: {found}")
        acked: dict[Part, int] = found
        return acked

    def close(self) -> None:
        self._process.terminate()
        self._process.join()
        self.connection.close()


def _produce(url: str, name: str, parts: Sequence[Part], connection: Connection) -> None:
    try:
        streams = [part.stream for part in parts]
        with Client(url, retry=_RETRY) as client, client.feed(name, streams) as feed:
            sent = dict.fromkeys(parts, 0)
            _send(feed, sent)
            _flush(feed)
            connection.send(sent)
            connection.recv()
            while not connection.poll(_INTERVAL):
                _send(feed, sent)
            _flush(feed)
            connection.send(sent)
    except Exception as error:
        connection.send(repr(error))


def _send(feed: Feed, sent: dict[Part, int]) -> None:
    for part, before in sent.items():
        sent[part] = after = before + _FRAME // part.of
        # The rows of a send that timed out are queued, and are acked by a later call.
        with suppress(Timeout):
            feed.send(part.stream, rows(part, before, after))


def _flush(feed: Feed) -> None:
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            feed.flush()
        except Timeout:
            if time.monotonic() > end:
                raise
        else:
            return
