"""Batches: splitting keeps what the whole batch has."""

from __future__ import annotations

import numpy as np

from mavstream_server.columns.batch import Batch
from mavstream_server.columns.column import Column


def test_parts_of_rows_in_order_are_in_order_and_have_the_bytes_of_the_whole() -> None:
    times = np.arange(10)
    batch = Batch({"x": Column(times)}, 10, times, time=times, row_watermark=times)
    parts = batch.split(4)
    assert all(part.row_watermark is part.time for part in parts)
    assert sum(part.nbytes for part in parts) == batch.nbytes
