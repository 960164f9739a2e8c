"""Options of the data source, validated before anything is read or written."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NoReturn
from urllib.parse import urlsplit

from mavstream_spark.errors import InvalidJob

Start = Literal["earliest", "latest"] | int

_NAMES = (
    *("url", "token", "timeout", "stream", "query", "from", "to", "metadata", "failOnDataLoss"),
    *("numPartitions", "maxRowsPerTrigger", "writer", "batch"),
)
_SPARK = frozenset({"checkpointlocation", "queryname", "path"})
"""Options that Spark itself adds to those of a sink."""
_WRITER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PARTITIONS = 4
_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Which server, and how long to try to reach it."""

    url: str
    token: str | None
    timeout: float
    """How long a server that does not answer is asked again, in seconds."""

    def __repr__(self) -> str:
        return f"ServerOptions({self.url!r})"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What is read, and how."""

    server: ServerOptions
    kind: Literal["stream", "query"]
    name: str
    start: Start | None
    """None for the default: a batch begins with the earliest row, a stream with the next one to come."""
    stop: Literal["latest"] | int
    metadata: bool
    fail_on_loss: bool
    partitions: int
    """The most partitions of a read or of a micro-batch."""
    most_rows: int | None
    """The most rows of a micro-batch."""


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where rows are written, and as whom."""

    server: ServerOptions
    stream: str
    writer: str | None
    """The producer that the rows are of; None for one that is named after the query, or made up."""
    batch: int | None
    """The number of the batch, of a write that may be repeated."""


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options of a read; raises InvalidJob."""
    options = _lowered(given)
    kinds: list[Literal["stream", "query"]] = [kind for kind in ("stream", "query") if options.get(kind)]
    if len(kinds) != 1:
        got = "both" if kinds else "neither"
        raise InvalidJob(f"expected option 'stream' or option 'query', got {got}: name what is to be read")
    return ReadOptions(
        _server(options),
        kinds[0],
        options[kinds[0]],
        _start(options),
        _stop(options),
        _flag(options, "metadata", False),
        _flag(options, "failOnDataLoss", True),
        _count(options, "numPartitions") or _PARTITIONS,
        _count(options, "maxRowsPerTrigger"),
    )


def write_options(given: Mapping[str, str], *, overwrite: bool) -> WriteOptions:
    """Return the options of a write; raises InvalidJob."""
    options = _lowered(given)
    if overwrite:
        raise InvalidJob(
            "rows of a stream are never replaced: use outputMode('append') or 'update', or mode('append')"
        )
    stream, writer = options.get("stream"), options.get("writer")
    if not stream:
        raise InvalidJob("expected option 'stream', got none: name the stream that is to be written")
    if writer is not None and not _WRITER.fullmatch(writer):
        raise InvalidJob(
            f"option 'writer' must be an identifier of at most 64 letters, digits and _, got {writer!r}"
        )
    batch = options.get("batch")
    if batch is not None and writer is None:
        raise InvalidJob("option 'batch' needs option 'writer': batches are numbered per writer")
    return WriteOptions(_server(options), stream, writer, None if batch is None else _number("batch", batch))


def _lowered(given: Mapping[str, str]) -> dict[str, str]:
    options = {name.lower(): value for name, value in given.items()}
    known = {name.lower(): name for name in _NAMES}
    for name in options:
        if name not in known and name not in _SPARK:
            close = difflib.get_close_matches(name, known, 1)
            meant = f", did you mean '{known[close[0]]}'?" if close else f": use {', '.join(_NAMES)}"
            raise InvalidJob(f"there is no option '{name}'{meant}")
    return options


def _server(options: Mapping[str, str]) -> ServerOptions:
    url = options.get("url", "")
    try:
        parts = urlsplit(url)
        port = parts.port or 0
    except ValueError:
        parts, port = None, 0
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or port < 0:
        _refuse("url", "http://HOST:PORT or https://HOST", "none" if not url else "something else")
    if parts.username is not None or parts.query or parts.fragment:
        # Not shown: it may hold a secret.
        _refuse("url", "an address alone", "one with more: give a token as option 'token'")
    timeout = options.get("timeout", str(_TIMEOUT))
    try:
        seconds = float(timeout.removesuffix("s"))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        _refuse("timeout", "seconds", repr(timeout))
    return ServerOptions(url.rstrip("/"), options.get("token") or None, seconds)


def _start(options: Mapping[str, str]) -> Start | None:
    text = options.get("from")
    if text is None:
        return None
    if text in ("earliest", "latest"):
        return "earliest" if text == "earliest" else "latest"
    if not text.isdecimal():
        _refuse("from", "'earliest', 'latest' or the position of the first row", repr(text))
    return int(text)


def _stop(options: Mapping[str, str]) -> Literal["latest"] | int:
    text = options.get("to", "latest")
    if text == "latest":
        return "latest"
    if not text.isdecimal():
        _refuse("to", "'latest' or the position behind the last row", repr(text))
    return int(text)


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        _refuse(name, "'true' or 'false'", repr(text))
    return text == "true"


def _count(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if _number(name, text) == 0:
        _refuse(name, "a number from 1", "0")
    return int(text)


def _number(name: str, text: str) -> int:
    if not text.isdecimal():
        _refuse(name, "a number", repr(text))
    return int(text)


def _refuse(name: str, expected: str, got: str) -> NoReturn:
    raise InvalidJob(f"option '{name}' must be {expected}, got {got}")
