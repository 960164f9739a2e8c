"""`mavstream feed STREAM=-`: rows of a pipe, sent as they come."""

from __future__ import annotations

import secrets
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import cast

import pyarrow as pa

from mavstream import Client, NotFound, Rejected
from mavstream_feeder.errors import FeederError, UnreadableFile
from mavstream_feeder.input.inference import fields_of_lines, stream_of_fields
from mavstream_feeder.reports import Report, Stopped, StreamReport
from mavstream_feeder.session import Say, said
from mavstream_protocol import FieldSpec, FieldType, StreamSpec
from mavstream_protocol.row_files.csv_rows import CsvRows
from mavstream_protocol.row_files.csv_text import read_header, read_text
from mavstream_protocol.row_files.guessing import guess_types
from mavstream_protocol.row_files.json_lines import JsonRows
from mavstream_protocol.row_files.names import column_names
from mavstream_protocol.row_files.pipes import Chunk, Pipe, chunks, without_header
from mavstream_protocol.row_files.reading import BadRowFound, Reading


class PipeFormat(StrEnum):
    """The format of the lines of a pipe."""

    NDJSON = "ndjson"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class LiveFeed:
    """A pipe that is fed into a stream."""

    stream: str
    format: PipeFormat
    reading: Reading
    producer: str | None = None
    create: bool = False
    event_time: str | None = None
    limit: int | None = None
    seconds: float | None = None
    skip_rejected: bool = False
    complete: bool = False


@dataclass(slots=True)
class _Progress:
    sent: int = 0
    rejected: int = 0
    stopped: Stopped = Stopped.DONE


def run_live(client: Client, feed: LiveFeed, say: Say) -> Report:
    """Feed standard input to its end, or until Ctrl-C; raises MavstreamError."""
    started = time.monotonic()
    progress = _Progress()
    source: Iterator[Chunk] = chunks(cast(Pipe, sys.stdin.buffer))
    try:
        with _stopped_by_signals():
            _feed(client, feed, source, progress, started, say)
    except BadRowFound as error:
        raise UnreadableFile(f"standard input: {error}") from None
    finally:
        feed.reading.bad_rows.close()
    if feed.complete and progress.stopped is Stopped.DONE:
        client.complete(feed.stream)
    return _report(feed, progress, time.monotonic() - started)


def _feed(
    client: Client, feed: LiveFeed, source: Iterator[Chunk], progress: _Progress, started: float, say: Say
) -> None:
    def rejected(refusal: Rejected) -> None:
        if not feed.skip_rejected:
            raise refusal
        progress.rejected += 1

    name = feed.producer or f"pipe_{secrets.token_hex(4)}"
    try:
        rows, source = _parser(client, feed, source, say)
        with client.feed(name, [feed.stream], on_reject=rejected) as sending:
            try:
                for chunk in source:
                    batch = rows.parse(chunk.content, chunk.first_line)
                    if feed.limit is not None:
                        batch = batch.slice(0, feed.limit - progress.sent)
                    _send(sending, feed.stream, batch)
                    progress.sent += batch.num_rows
                    if progress.sent == feed.limit:
                        break
                    if feed.seconds is not None and time.monotonic() - started >= feed.seconds:
                        progress.stopped = Stopped.TIME
                        break
            except _Interrupted:
                progress.stopped = Stopped.ASKED
            if progress.sent:
                sending.end(feed.stream)
    except _Interrupted:
        progress.stopped = Stopped.ASKED


def _send(sending: object, stream: str, batch: pa.RecordBatch) -> None:
    if batch.num_rows:
        sending.send(stream, batch)  # type: ignore[attr-defined]


def _parser(
    client: Client, feed: LiveFeed, source: Iterator[Chunk], say: Say
) -> tuple[CsvRows | JsonRows, Iterator[Chunk]]:
    """Return what parses the lines, and the lines; creates the stream from the first of them if it may."""
    names: tuple[str, ...] = ()
    if feed.format is PipeFormat.CSV:
        header, source = without_header(source)
        names = column_names(read_header(header, feed.reading), feed.reading.rename)
    try:
        spec = client.stream_info(feed.stream).spec
        if feed.create:
            say(f"stream '{feed.stream}' exists: {said(spec)}")
    except NotFound:
        if not feed.create:
            raise
        first = next(source, None)
        if first is None:
            raise FeederError(f"there are no rows to make stream '{feed.stream}' from") from None
        source = chain((first,), source)
        spec = client.create_stream(_inferred(feed, names, first, say)).spec
        say(f"created stream '{feed.stream}': {said(spec)}")
    schema = spec.schema()
    parser = CsvRows(names, schema, feed.reading) if names else JsonRows(schema, feed.reading)
    return parser, source


def _inferred(feed: LiveFeed, names: tuple[str, ...], first: Chunk, say: Say) -> StreamSpec:
    """Return the stream that fits the first lines; what comes later may be null, except the event time."""
    if names:
        text = read_text(first.content, names, first.first_line, feed.reading, text_can_be_null=True)
        unix = () if feed.event_time is None else (feed.event_time,)
        guesses = guess_types(text, feed.reading, unix)
        fields = [FieldSpec(name=name, type=guess.type) for name, guess in guesses.items()]
        for guess in guesses.values():
            if guess.remark:
                say(guess.remark)
    else:
        fields = fields_of_lines("standard input", first.content.splitlines())
    times = [one.name for one in fields if one.type is FieldType.TIMESTAMP]
    event_time = feed.event_time or (times[0] if len(times) == 1 else None)
    loose = [one.model_copy(update={"nullable": one.name != event_time}) for one in fields]
    return stream_of_fields(feed.stream, "standard input", loose, event_time)


def _report(feed: LiveFeed, progress: _Progress, seconds: float) -> Report:
    stream = StreamReport(
        sent=progress.sent,
        acked=progress.sent - progress.rejected,
        rejected=progress.rejected,
        lag_p50_ms=None,
        lag_p99_ms=None,
        lag_max_ms=None,
        waiting=False,
        feed=feed.stream,
        file="-",
        row=progress.sent,
        passes=0,
        over=True,
    )
    return Report(
        seconds=seconds,
        sent=stream.sent,
        acked=stream.acked,
        rejected=stream.rejected,
        unmatched={},
        frames=0,
        reconnects=0,
        lag_p50_ms=None,
        lag_p99_ms=None,
        lag_max_ms=None,
        stopped=progress.stopped,
        streams={feed.stream: stream},
        bad_rows=feed.reading.bad_rows.count,
    )


class _Interrupted(BaseException):
    """A signal asks to stop; rows that were read are still sent."""


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Let the first SIGINT or SIGTERM end reading; the second one has its usual effect."""

    def stop(*_: object) -> None:
        for number, former in former_ones.items():
            signal.signal(number, former)
        raise _Interrupted

    numbers = (signal.SIGINT, signal.SIGTERM)
    former_ones = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, former in former_ones.items():
            signal.signal(number, former)
