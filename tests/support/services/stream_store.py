"""Stream stores for tests, with a catalog in a directory, that can be stopped and reopened."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from mavstream_protocol.streams import StreamSpec
from mavstream_protocol.tuples import decode_columns, encode_message
from mavstream_protocol.wire.envelope import seal
from mavstream_protocol.wire.feed import Hello, to_producer
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.core.settings import Settings
from mavstream_server.ingest.connected_producers import ConnectedProducers
from mavstream_server.ingest.producer_session import ProducerSession
from mavstream_server.ingest.retention import NoReaders
from mavstream_server.ingest.stream_store import StreamStore
from mavstream_server.ingest.traffic import Traffic
from mavstream_server.log import Frame, LogReader, gather_arrivals
from mavstream_server.testing import ManualClock

EVENTS = {
    "name": "events",
    "fields": [{"name": "at", "type": "timestamp"}, {"name": "home", "type": "string", "nullable": True}],
    "event_time": "at",
}
NUMBERS = {"name": "numbers", "fields": [{"name": "n", "type": "int"}]}


def spec(base: dict[str, Any], **changes: Any) -> StreamSpec:
    return StreamSpec.model_validate({**base, **changes})


def numbers(*values: int) -> Any:
    return decode_columns(spec(NUMBERS).schema(), {"n": list(values)})


def events(*times: int, home: str = "a") -> Any:
    return decode_columns(spec(EVENTS).schema(), {"at": list(times), "home": [home] * len(times)})


def limited_files(size: int) -> Callable[[], None]:
    """Limit the size of files, as if the disk were full; returns a function that undoes it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    def undo() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)

    return undo


class ManualTimers:
    """Timers that a test runs by hand."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.later: list[tuple[float, Callable[[], None]]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        self.later.append((delay, callback))


class ScriptedReaders(NoReaders):
    """Queries whose needed positions, and need for clock marks, a test sets."""

    def __init__(
        self,
        positions: dict[str, int] | None = None,
        holders: dict[str, str] | None = None,
        waiting: Iterable[str] = (),
    ) -> None:
        self.positions = positions or {}
        self.holders = holders or {}
        self.waiting = set(waiting)

    def needed_position(self, stream: str) -> int | None:
        return self.positions.get(stream)

    def held_by(self, stream: str) -> str | None:
        return self.holders.get(stream)

    def waits_for_time(self, stream: str) -> bool:
        return stream in self.waiting


class ReturnedCredit:
    """Records the streams that got credit again."""

    def __init__(self) -> None:
        self.streams: list[str] = []

    def credit_returned(self, stream: str) -> None:
        self.streams.append(stream)


class Server:
    """A store with its catalog in a directory, which can be reopened."""

    def __init__(self, path: Path, clock: ManualClock) -> None:
        self.path = path
        self.clock = clock
        self.rung = 0
        self.options: dict[str, Any] = {}
        self._open: list[Catalog | StreamStore] = []

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, **options: Any) -> StreamStore:
        self.options = options or self.options
        given = dict(self.options)
        parts = {
            name: given.pop(name)
            for name in ("timers", "background", "readers", "importance", "producers")
            if name in given
        }
        settings = Settings(data=self.path, **given)
        catalog = self.catalog = Catalog(
            settings.catalog_file,
            max_producers=settings.max_producers,
            now_us=lambda: self.clock.now() // 1000,
        )
        self._open = [catalog]
        self.store = StreamStore(settings, catalog, self.clock, ring=self._ring, **parts)
        self._open.insert(0, self.store)
        return self.store

    def stop(self) -> None:
        for part in self._open:
            part.close()
        self._open = []

    def again(self) -> StreamStore:
        self.stop()
        return self.start()

    def _ring(self) -> None:
        self.rung += 1

    def frames(self, stream: str) -> list[Frame]:
        reader = LogReader(self.path / "streams" / stream)
        cursor = reader.cursor(reader.begin)
        found = []
        while (step := cursor.next()) is not None:
            found.append(step[0])
        return found

    def arrivals(self, stream: str) -> list[int]:
        """Return the arrival time of each row."""
        reader = LogReader(self.path / "streams" / stream)
        return gather_arrivals(reader.cursor(reader.begin).take(1 << 30, 1 << 30)).tolist()

    def kinds(self, stream: str) -> list[str]:
        return [frame.kind.name for frame in self.frames(stream)]

    def values(self, stream: str) -> list[int]:
        return [n for frame in self.frames(stream) if frame.rows for n in frame.column("n").values.tolist()]


class Producer:
    """A producer session with multi-stream messages, over a store that is flushed by hand."""

    def __init__(self, server: Server, *streams: str, bundles: bool = True, name: str = "p") -> None:
        self._server = server
        self.traffic = Traffic()
        connected = ConnectedProducers(server.catalog.producers).connected
        self.session = ProducerSession(
            server.store, self.traffic, "process", 1 << 20, lambda: None, connected
        )
        self.session.received(Hello(producer=name, streams=streams, bundles=bundles).model_dump_json())
        assert self.received()[0]["type"] == "welcome"

    def send(self, batch: pa.RecordBatch, *frames: tuple[str, int, int]) -> None:
        self.session.received(seal(json.dumps({"frames": frames}).encode(), encode_message(batch)))

    def received(self, *, flush: bool = True) -> list[dict[str, Any]]:
        if flush:
            self._server.store.flush()
        messages = self.session.take()
        for message in messages:
            to_producer.validate_json(message)
        return [json.loads(message) for message in messages]

    def acked(self) -> dict[str, int]:
        """Return the sequences in one message of acks."""
        (message,) = self.received()
        assert message["type"] == "acks"
        return {stream: sequence for stream, (sequence, _) in message["streams"].items()}
