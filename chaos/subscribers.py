"""The subscribers: a process that reads the answers of every query and resumes by offset after each kill."""

from __future__ import annotations

import threading
import time
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import pyarrow as pa

from chaos.processes import PROCESSES
from chaos.server import PATIENCE, wait_for
from mavstream import Client, Results, Retry, TransportError

_RETRY = Retry(first=0.02, most=0.2, patience=PATIENCE)


class Received(NamedTuple):
    """What a subscriber has received of a query."""

    batches: list[tuple[int, int, pa.RecordBatch]]
    """Offset of the first row, epoch and rows of each message."""
    gaps: list[str]
    state: str | None
    """How the query has ended; None if that is not known."""
    error: str | None


class Subscribers:
    """The process of the subscribers, with a thread per query."""

    def __init__(self, url: str, ids: list[str]) -> None:
        self._connection, other = PROCESSES.Pipe()
        self._process = PROCESSES.Process(target=_subscribe, args=(url, ids, other), daemon=True)
        self._process.start()
        other.close()
        # The rounds begin when everybody is connected.
        self._receive(PATIENCE)

    def finish(self, timeout: float) -> dict[str, Received]:
        """Wait until all queries have ended, no longer than a timeout, and return what was received."""
        self._connection.send(timeout)
        found: dict[str, Received] = self._receive(timeout + PATIENCE)
        return found

    def _receive(self, timeout: float) -> Any:
        if not self._connection.poll(timeout):
            raise TimeoutError("the subscribers do not report")
        return self._connection.recv()

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()
        self._connection.close()


class _Subscriber(threading.Thread):
    def __init__(self, url: str, query: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.query = query
        self.batches: list[tuple[int, int, pa.RecordBatch]] = []
        self.gaps: list[str] = []
        self.state: str | None = None
        self.error: str | None = None
        self._results: Results | None = None

    def run(self) -> None:
        try:
            with Client(self._url, retry=_RETRY) as client:
                self._results = results = client.results(self.query, on_gap=self._gap)
                while results.state is None:
                    try:
                        self._read(results)
                    except TransportError:
                        # Only the second connection of the SDK is tried again, and the first may meet a kill.
                        if self.connected:
                            raise
                self.state = results.state
        except Exception as error:
            self.error = repr(error)

    @property
    def connected(self) -> bool:
        """Whether the server has answered once, or never will."""
        return self.error is not None or (self._results is not None and self._results.schema is not None)

    def _read(self, results: Results) -> None:
        for batch in results.batches():
            last = results.offset
            assert last is not None
            self.batches.append((last - batch.num_rows + 1, results.epoch, batch))

    def received(self) -> Received:
        """Return what was received so far."""
        return Received(list(self.batches), list(self.gaps), self.state, self.error)

    def _gap(self, gap: Any) -> None:
        self.gaps.append(f"{gap.reason.value} [{gap.start}, {gap.stop}) epoch {gap.epoch}")


def read_results(url: str, query: str) -> Received:
    """Read the answers of a query that has ended from its result log, in this process."""
    reader = _Subscriber(url, query)
    reader.run()
    return reader.received()


def _subscribe(url: str, ids: list[str], connection: Connection) -> None:
    threads = [_Subscriber(url, query) for query in ids]
    for thread in threads:
        thread.start()
    wait_for(lambda: all(each.connected for each in threads), "the subscribers to connect")
    connection.send(None)
    timeout = float(connection.recv())
    end = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    connection.send({each.query: each.received() for each in threads})
