"""Runs: what the server and a runner tell each other about a query that another engine runs."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, NonNegativeInt

from mavstream_protocol.described import Described
from mavstream_protocol.names import Name
from mavstream_protocol.queries import QuerySpec
from mavstream_protocol.streams import FieldSpec
from mavstream_protocol.wire.resources import DesiredState

_CONFIG = ConfigDict(frozen=True, extra="forbid")

BATCH_KEY = b"mavstream.batch"
"""Key of the metadata of an Arrow schema under which a batch of results has its `ResultBatch` as JSON."""


class ResultBatch(Described):
    """What comes with a batch of results: its number, and from where the run goes on behind it."""

    model_config = _CONFIG
    batch: Annotated[int, Field(ge=1, le=(1 << 63) - 1)]
    """One more than that of the last batch. A batch that was published before is ignored."""
    state: dict[str, Any]
    """From where the run goes on: the runner gets it again after a failure; the server does not read it."""
    needs: dict[Name, NonNegativeInt] = {}
    """By stream, the lowest position that later batches read; rows from there on are retained."""
    ends: bool = False
    """Whether the query has finished: no batch follows."""


class ResultsTaken(Described):
    """The answer to a batch of results."""

    model_config = ConfigDict(frozen=True)
    accepted: int
    """Rows that were appended; 0 if the batch had been published before."""
    repeated: bool
    """Whether it had been: then the state of its run is that of the first time."""
    batch: int
    """Number of the last batch."""
    end: int
    """Offset of the next result."""


class RunReport(Described):
    """What a runner tells of a query that it runs; at least every 5 seconds."""

    model_config = _CONFIG
    runner: Name
    """Name of the runner."""
    paused: bool = False
    """Whether it has stopped reading, as was asked for."""
    failed: str | None = None
    """Why the query cannot go on; it ends with this."""
    progress: dict[str, float] = Field(default={}, max_length=50)
    """Numbers about the run, by name: rows read, rows per second, seconds of the last batch, rows behind."""


class RunStream(Described):
    """A stream of a run, as it is now."""

    model_config = ConfigDict(frozen=True)
    fields: tuple[FieldSpec, ...]
    """Those that the query sees."""
    event_time: str | None
    begin: int
    """Position of the oldest row that is stored."""
    end: int
    """Position of the next row."""
    watermark: int | None
    """The watermark at the end (us since 1970); null before the first row."""
    latest: int | None
    """The largest time of all rows up to the end (us since 1970); null before the first row."""
    complete: bool
    """Whether no rows will follow."""


class RunTask(Described):
    """What a runner is to do for a query."""

    model_config = ConfigDict(frozen=True)
    id: str
    spec: QuerySpec
    desired: DesiredState
    final: str | None
    """How the query has ended; null while it has not."""
    priority: int
    """That of its class."""
    epoch: int
    batch: int
    """Number of the last batch that was published; 0 before the first."""
    state: dict[str, Any]
    """That of the last batch; before the first, `positions` and `gaps`: where the query begins to read each
    stream, and the largest time (us) of the rows before, for streams that had any."""
    streams: dict[str, RunStream]
