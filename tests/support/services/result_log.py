"""Result logs for tests: written as engines write them, with the feed that subscribers and pulls read."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from mavstream_protocol import Schema
from mavstream_protocol.wire.resources import ActualState
from mavstream_protocol.wire.results import OnLag
from mavstream_protocol.wire.seams import NotRetained
from mavstream_server.columns.column import Column
from mavstream_server.log import LogDescription, LogOptions, LogWriter, Retention
from mavstream_server.log.format.segment import END
from mavstream_server.results.encoding import ResultFormat
from mavstream_server.results.service import ResultService
from mavstream_server.results.subscription import Subscription
from mavstream_server.testing.streams import parse_fields

SCHEMA = parse_fields("room string null, n int, at timestamp")


@dataclass
class Query:
    """A query as the feed sees it."""

    id: str = "hot-abc"
    schema: Schema = SCHEMA
    epoch: int = 1
    revision: int = 0
    final: ActualState | None = None
    reason: str | None = None

    def not_retained(self, revision: int) -> tuple[NotRetained, ...]:
        """Return none: its plans lack no rows."""
        return ()


class Answers:
    """A query, its result log and the feed over it."""

    def __init__(
        self, path: Path, *, service: ResultService | None = None, query: Query | None = None, **options: Any
    ) -> None:
        self.query = query or Query()
        self.service = service or ResultService(path)
        self.options = LogOptions(**options)
        self.path = path / self.query.id
        self.writer: LogWriter | None = None

    def __enter__(self) -> Answers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.writer is not None:
            self.writer.close()

    def answer(self, count: int, room: str | None = "hall", ring: bool = True) -> None:
        """Append a number of rows in one frame, as the engine does."""
        if self.writer is None:
            self.writer = LogWriter(self.path, LogDescription(self.query.schema), self.options)
        first = self.writer.end
        values: dict[str, list[Any]] = {
            "room": [room] * count,
            "n": list(range(first, first + count)),
            "at": [1_000_000 * n for n in range(first, first + count)],
        }
        columns = {field.name: Column.from_list(field.type, values[field.name]) for field in SCHEMA}
        self.writer.append(columns, count, 1_000 + first, producer=self.query.epoch)
        if ring:
            self.service.doorbell()

    def forget(self) -> int:
        """Remove all segments but the one being written, even if needed; returns the first offset left."""
        assert self.writer is not None
        Retention(max_bytes=1).apply(self.writer, None, 0, force=True)
        return self.writer.begin

    def reopen(self, **options: Any) -> None:
        """Continue writing the log with other options, as after a restart."""
        assert self.writer is not None
        self.writer.close()
        self.writer, self.options = None, LogOptions(**options)

    @property
    def segments(self) -> int:
        """How many segments the log has, none before anything is written."""
        return 0 if self.writer is None else len(self.writer.segments)

    def count_only(self, end: int) -> int:
        """Set the end of the log in the segment being written; returns the old one."""
        assert self.writer is not None
        with self.writer.segments[-1].name.within(self.path).open("r+b") as file:
            file.seek(8 * END)
            old_end = int.from_bytes(file.read(8), "little")
            file.seek(8 * END)
            file.write(end.to_bytes(8, "little"))
        return old_end

    def restart(self) -> None:
        self.query.epoch += 1
        self.service.changed(self.query.id)

    def end(self, state: ActualState = ActualState.FINISHED, reason: str | None = None) -> None:
        self.query.final, self.query.reason = state, reason
        self.service.changed(self.query.id)

    def subscribe(
        self,
        after: int | str | None = None,
        format_: ResultFormat = ResultFormat.ROWS,
        on_lag: OnLag = OnLag.GAP,
    ) -> Subscription:
        return Subscription(self.service, self.service.of(self.query), after, format_, on_lag)


def available(subscription: Subscription) -> list[Any]:
    """Return the messages that are available now: JSON decoded, binary ones unchanged."""
    found = []
    while (message := subscription.next_now()) is not None:
        found.append(json.loads(message) if isinstance(message, str) else message)
        if found[-1] and isinstance(found[-1], dict) and found[-1]["type"] == "closed":
            break
    return found


def numbers(messages: list[Any]) -> list[int]:
    return [row["n"] for message in messages if message["type"] == "rows" for row in message["rows"]]


def fall_behind(answers: Answers) -> int:
    """Append far more rows than a segment holds and remove them; returns the first remaining offset."""
    for _ in range(100):
        answers.answer(1_000)
    return answers.forget()


async def waiting_for(subscription: Subscription) -> asyncio.Task[str | bytes | None]:
    """Start to wait for the next message, which does not exist yet."""
    waiting = asyncio.create_task(subscription.next())
    assert not (await asyncio.wait((waiting,), timeout=0))[0]
    return waiting
