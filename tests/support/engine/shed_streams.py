"""Streams of numbers, and the rows that a shedder keeps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tests.conftest import MakeStream

from mavstream_protocol.expressions.parser import parse_scalar
from mavstream_server.columns.column import Array, Ints
from mavstream_server.log.read_batch import ReadBatch
from mavstream_server.operators.shedding.shedder import Shedder
from mavstream_server.testing import ScriptedStream
from mavstream_server.testing.streams import parse_fields

FIELDS = "x float null, k int"


def numbers(stream: MakeStream, x: Array | Sequence[float | None], name: str = "numbers") -> ScriptedStream:
    """Write a stream of numbers; `k` is a row's position."""
    made = stream(name, FIELDS)
    values = x.tolist() if isinstance(x, np.ndarray) else list(x)
    made.columns({"x": values, "k": list(range(len(values)))})
    return made


def shedder(share: float, utility: str | None = None, name: str = "numbers") -> Shedder:
    """Return a shedder of such a stream."""
    fields = {field.name: field for field in parse_fields(FIELDS)}
    made = Shedder(name, None if utility is None else parse_scalar(utility, fields))
    made.set(share)
    return made


def kept(
    sheds: Shedder, rows: ScriptedStream, cuts: Sequence[int] = (), start: int = 0, stop: int | None = None
) -> Ints:
    """Return the positions between start and stop that are kept, if batches are cut at `cuts`."""
    stops = [*cuts, rows.reader.end if stop is None else stop]
    cursor = rows.reader.cursor(start)
    found = []
    for begin, end in zip([start, *cuts], stops, strict=True):
        batch = ReadBatch(cursor.take(end - begin))
        if batch.rows:
            found.append(batch.positions[sheds.kept(batch)])
    return np.concatenate(found)
