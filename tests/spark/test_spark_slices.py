"""Slices of time: every row within the stream's time goes to one slice. Without Spark."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from mavstream_spark.datasets.slices import SlicedStream, assign_tasks, from_ipc, runs, to_ipc

SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("value", pa.int64())])
STREAM = SlicedStream("readings", SCHEMA, "at", begin=1000, end=1100, slices=3, slice_rows=40, first_slice=5)


def table(times: list[int]) -> pa.Table:
    return pa.table(
        {"at": pa.array(times, pa.int64()).view(SCHEMA.field("at").type), "value": range(len(times))},
        schema=SCHEMA,
    )


def split(times: list[int]) -> dict[int, list[int]]:
    return {number: rows.column("value").to_pylist() for number, rows in STREAM.split(table(times))}


def test_rows_go_to_their_slice_and_stay_in_order_there() -> None:
    # The width is 34, so the last slice is shorter.
    assert split([1099, 1000, 1034, 1033, 1067, 1001]) == {5: [1, 3, 5], 6: [2, 4], 7: [0]}


def test_rows_outside_of_the_time_are_ignored() -> None:
    assert split([999, 1000, 1100, 1099]) == {5: [1], 7: [3]}
    assert split([999, 5]) == {}
    assert split([]) == {}


def test_rows_of_a_single_slice_keep_their_order() -> None:
    assert split([1050, 1040, 1060]) == {6: [0, 1, 2]}


def test_tasks_get_about_the_same_number_of_rows() -> None:
    streams = [
        replace(STREAM, slices=slices, slice_rows=rows)
        for slices, rows in ((2, 500), (1, 10), (1, 300), (1, 200))
    ]
    tasks = assign_tasks(streams, 3)
    shares = [[number for number in range(5) if tasks[number] == task] for task in range(3)]
    assert shares == [[0, 2], [1], [3, 4]]
    assert sorted(assign_tasks(streams, 5)) == [0, 1, 2, 3, 4]


def test_runs_begin_where_values_change() -> None:
    assert list(runs(np.array([3, 3, 4, 9]))) == [(3, 0, 2), (4, 2, 3), (9, 3, 4)]
    assert list(runs(np.array([7]))) == [(7, 0, 1)]
    assert list(runs(np.array([], np.int64))) == []


def test_encoded_rows_are_those_of_the_slice_and_no_others() -> None:
    rows = table(list(range(1000, 1100))).slice(40, 2)
    encoded = to_ipc(rows)
    assert from_ipc(encoded).equals(rows)
    assert len(encoded) < 1000
