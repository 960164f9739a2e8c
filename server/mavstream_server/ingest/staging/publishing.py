"""Publishing: appends stages to a stream as one batch, once per producer and sequence.

A batch is one frame of its producer, whose sequence the log stores with the rows. So it is there as a whole
or not at all, and after a crash the log says whether it was published.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

from mavstream_protocol.quantities import format_size
from mavstream_protocol.streams import StreamSpec
from mavstream_protocol.tuples import arrow_schema
from mavstream_server.core.errors import TooLarge
from mavstream_server.core.principal import Principal
from mavstream_server.ingest.append_handle import Outcome, Repeated, outcome_of
from mavstream_server.ingest.staging.stages import StageStore, StoredStage
from mavstream_server.ingest.stream_store import StreamStore


class StagedBatch(NamedTuple):
    """A batch to be published: which stages, as which frame of which producer."""

    stream: str
    producer: str
    sequence: int
    stages: tuple[str, ...]
    ends: bool
    """Whether the producer sends no more rows: it no longer holds the watermark."""


@dataclass(slots=True)
class Publisher:
    """Publishes batches. Lives in one event loop."""

    streams: StreamStore
    stages: StageStore
    most_bytes: int
    """The largest batch, in bytes."""
    _locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = field(default_factory=WeakValueDictionary)

    async def publish(self, batch: StagedBatch, who: Principal) -> Outcome:
        """Append the rows of a batch unless its sequence was published before; its stages are removed.

        Raises NotFound, Forbidden, TooLarge, and what `Enqueuer.ingest` raises; then the stages stay.
        """
        async with self._locks.setdefault((batch.stream, batch.producer), asyncio.Lock()):
            outcome = await self._publish(batch, who)
            self.stages.discard(batch.stream, batch.stages, who)
            if batch.ends:
                await outcome_of(lambda done: self.streams.end(batch.producer, batch.stream, done))
            return outcome

    async def _publish(self, batch: StagedBatch, who: Principal) -> Outcome:
        spec = self.streams.spec(batch.stream)
        last = self.streams.last_sequence(batch.producer, batch.stream)
        if batch.sequence <= last:
            return Repeated(batch.sequence, last)
        stages = [self.stages.find(batch.stream, name, who) for name in batch.stages]
        nbytes = sum(stage.nbytes for stage in stages)
        if nbytes > self.most_bytes:
            raise TooLarge(
                f"the {len(stages)} stages have {format_size(nbytes)} together, and "
                f"{format_size(self.most_bytes)} can be published at once: publish fewer rows, or raise "
                "MAVSTREAM_MAX_BATCH_BYTES"
            )
        rows = await asyncio.to_thread(_rows_of, stages, spec)
        return await self.streams.enqueuer.ingest(
            batch.producer, batch.stream, batch.sequence, rows, nbytes, skips=True
        )


def _rows_of(stages: Sequence[StoredStage], spec: StreamSpec) -> pa.RecordBatch:
    """Return the rows of stages in the order of their event times, with texts as codes.

    Stages are filled side by side: one behind the other, the rows of the later ones would be late.
    """
    empty = arrow_schema(spec.schema()).empty_table()
    rows = pa.concat_tables([empty, *(stage.read() for stage in stages)])
    if spec.event_time is not None:
        times = rows.column(spec.event_time).cast(pa.int64()).to_numpy()
        if np.count_nonzero(times[1:] < times[:-1]):
            rows = rows.combine_chunks().take(np.argsort(times, kind="stable"))
    # Encoded here, in a thread, instead of on the event loop.
    columns = [
        column.dictionary_encode() if pa.types.is_string(column.type) else column for column in rows.columns
    ]
    arrays = [column.unify_dictionaries().combine_chunks() for column in columns]
    return pa.RecordBatch.from_arrays(arrays, names=rows.column_names)
