"""Rows of a CSV or Parquet file that was dropped onto a stream."""

from __future__ import annotations

import base64
import io

import pyarrow as pa
from pyarrow import csv, parquet

from mavstream import AsyncClient

MOST_BYTES = 700_000
"""The largest file that is taken; larger ones are fed with `mavstream feed`."""


async def append_file(client: AsyncClient, stream: str, name: str, size: int, content: str) -> int:
    """Append the rows of a file, given in base64, to a stream; returns how many. Raises ValueError.

    A file that is too large comes without its content.
    """
    if size > MOST_BYTES:
        raise ValueError(f"{name} is larger than 700 kB: feed it with mavstream feed {stream}={name}")
    data = base64.b64decode(content)
    try:
        read = parquet.read_table if name.lower().endswith(".parquet") else csv.read_csv
        rows: pa.Table = read(io.BytesIO(data))
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"{name} cannot be read as {'Parquet' if 'parquet' in name else 'CSV'}: {error}"
        ) from None
    return await client.append(stream, rows)
