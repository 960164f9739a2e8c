"""Fields that a log gets while it is written and read: null before, there from the next segment on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_server.columns.column import Column
from mavstream_server.log import (
    FrameKind,
    LogDescription,
    LogMismatchError,
    LogOptions,
    LogReader,
    LogWriter,
    UnfitRowsError,
    gather,
)
from mavstream_server.log.format.description import load_description, stored_description

AT, N = Field("at", FieldType.TIMESTAMP), Field("n", FieldType.INT)
WET = Field("wet", FieldType.BOOL, nullable=True)
ROOM = Field("room", FieldType.STRING, nullable=True)
OLD = LogDescription(Schema((AT, N)), "at", 5)
SMALL = LogOptions(segment_bytes=4096)


def append(writer: LogWriter, *rows: Sequence[Any]) -> None:
    """Append rows with as many fields as the log has, in one frame."""
    fields = writer.description.schema.fields
    columns = {
        field.name: Column.from_list(field.type, [row[index] for row in rows])
        for index, field in enumerate(fields)
    }
    writer.append(columns, len(rows), writer.end + 1, producer=1, sequence=writer.last_sequence(1) + 1)


def read(reader: LogReader, position: int = 0) -> list[tuple[Any, ...]]:
    """Return the rows from a position on, with all fields, frame by frame and gathered at once."""
    fields = reader.description.schema.fields
    single: list[tuple[Any, ...]] = []
    cursor = reader.cursor(position)
    while (step := cursor.next()) is not None:
        frame, start = step
        columns = [frame.column(field.name).slice(start, frame.rows).to_list(field.type) for field in fields]
        single += zip(*columns, strict=True)
    spans = [span for span in reader.cursor(position).take(1 << 20) if span[2] > span[1]]
    gathered = gather(spans, reader.description.schema.names) if spans else {}
    lists = [gathered[field.name].to_list(field.type) for field in fields if gathered]
    assert list(zip(*lists, strict=True)) == single
    return single


def test_rows_before_a_field_was_added_have_nulls_there(tmp_path: Path) -> None:
    with LogWriter(tmp_path, OLD) as writer:
        append(writer, (10, 1), (20, 2))
        writer.add_fields((WET, ROOM))
        append(writer, (30, 3, True, "attic"), (40, 4, None, None))
        expected = [
            (10, 1, None, None),
            (20, 2, None, None),
            (30, 3, True, "attic"),
            (40, 4, None, None),
        ]
        assert read(LogReader(tmp_path)) == expected
        assert read(LogReader(tmp_path), position=1) == expected[1:]
        assert len(writer.segments) == 2
        assert writer.watermark == 35
    assert load_description(tmp_path).since == (2, 2)
    with LogWriter(tmp_path) as writer:
        append(writer, (50, 5, False, "hall"))
        assert writer.last_sequence(1) == 3
    assert read(LogReader(tmp_path)) == [*expected, (50, 5, False, "hall")]


def test_readers_that_are_open_see_a_field_without_being_opened_again(tmp_path: Path) -> None:
    with LogWriter(tmp_path, OLD, SMALL) as writer:
        reader = LogReader(tmp_path)
        for n in range(100):
            append(writer, (n, n))
        behind, level = reader.cursor(0), reader.cursor()
        behind.take(10)
        known = gather(reader.cursor(0).take(5), ["n"])
        writer.add_fields((ROOM,))
        assert "room" in reader.description.schema
        append(writer, (100, 100, "attic"))
        spans = level.take(1 << 20)
        assert gather(spans, ["n", "room"])["room"].to_list(FieldType.STRING) == ["attic"]
        rows = behind.take(1 << 20)
        columns = gather(rows, ["n", "room"])
        assert columns["n"].to_list(FieldType.INT) == list(range(10, 101))
        assert columns["room"].to_list(FieldType.STRING) == [None] * 90 + ["attic"]
        assert known["n"].to_list(FieldType.INT) == [0, 1, 2, 3, 4]


def test_several_additions_and_many_small_frames(tmp_path: Path) -> None:
    expected: list[tuple[Any, ...]] = []
    with LogWriter(tmp_path, OLD, SMALL) as writer:
        for added in (
            (),
            (WET,),
            (ROOM, Field("f", FieldType.FLOAT, True)),
            (Field("i", FieldType.INT, True),),
        ):
            if added:
                writer.add_fields(added)
            width = len(writer.description.schema)
            for n in range(60):
                row = (1000, n, n % 3 == 0, f"room {n % 7}", n / 2, None)[:width]
                append(writer, row)
                expected.append(row)
        reader = LogReader(tmp_path)
        assert read(reader) == [row + (None,) * (6 - len(row)) for row in expected]
    assert load_description(tmp_path).since == tuple(sorted(load_description(tmp_path).since))


def test_rows_without_an_added_field_are_refused_by_the_log(tmp_path: Path) -> None:
    with LogWriter(tmp_path, OLD) as writer:
        writer.add_fields((WET,))
        old = {"at": Column.from_list(AT.type, [1]), "n": Column.from_list(N.type, [1])}
        with pytest.raises(UnfitRowsError, match="expected the columns at, n, wet; got at, n"):
            writer.append(old, 1, 1)


def test_a_field_is_added_once(tmp_path: Path) -> None:
    with LogWriter(tmp_path, OLD) as writer, pytest.raises(LogMismatchError, match="must be distinct"):
        writer.add_fields((Field("n", FieldType.INT, nullable=True),))
    assert load_description(tmp_path) == OLD


def test_marks_and_positions_go_on_over_the_seam(tmp_path: Path) -> None:
    with LogWriter(tmp_path, OLD) as writer:
        writer.mark(FrameKind.JOIN, 1, producer=2)
        append(writer, (10, 1))
        writer.add_fields((WET,))
        append(writer, (20, 2, True))
        assert writer.watermark < 0, "producer 2 still holds the watermark"
        writer.mark(FrameKind.END, 3, producer=2)
        assert writer.watermark == 15
        cursor = LogReader(tmp_path).cursor(0)
        kinds = []
        while (step := cursor.next()) is not None:
            kinds.append((step[0].kind, step[0].first_position))
    assert kinds == [
        (FrameKind.JOIN, 0),
        (FrameKind.DATA, 0),
        (FrameKind.DATA, 1),
        (FrameKind.END, 2),
    ]


def test_old_logs_keep_the_version_that_earlier_releases_read(tmp_path: Path) -> None:
    LogWriter(tmp_path, OLD).close()
    assert json.loads((tmp_path / "log.json").read_text())["version"] == 1
    with LogWriter(tmp_path) as writer:
        writer.add_fields((WET,))
    stored = json.loads((tmp_path / "log.json").read_text())
    assert stored["version"] == 2
    assert [field.get("since") for field in stored["fields"]] == [None, None, 2]


def test_a_description_fits_if_one_side_has_more_nullable_fields(tmp_path: Path) -> None:
    LogWriter(tmp_path, OLD).close()
    wider = LogDescription(Schema((AT, N, WET)), "at", 5)
    assert stored_description(tmp_path, wider) == OLD
    with LogWriter(tmp_path) as writer:
        writer.add_fields((WET,))
    assert stored_description(tmp_path, OLD).since == (2,)
    other = LogDescription(Schema((AT, N, Field("dry", FieldType.BOOL, nullable=True))), "at", 5)
    for wrong in (other, LogDescription(wider.schema, "at", 6)):
        with pytest.raises(LogMismatchError, match="use another directory"):
            stored_description(tmp_path, wrong)


ALTER = """
import sys
from pathlib import Path
from mavstream_protocol.schema import Field, FieldType
from mavstream_server.core.storage import failpoints
from mavstream_server.log import LogWriter
failpoints.arm_from_environment("api")
LogWriter(Path(sys.argv[1])).add_fields((Field("wet", FieldType.BOOL, nullable=True),))
"""
POINTS = [
    f"log.{point}.{end}" for point in ("describe", "create", "rename", "seal") for end in ("before", "after")
]


@pytest.mark.parametrize("point", POINTS)
def test_a_writer_that_is_killed_adds_all_of_a_field_or_nothing(tmp_path: Path, point: str) -> None:
    with LogWriter(tmp_path, OLD) as writer:
        append(writer, (10, 1))
    env = {**os.environ, "MAVSTREAM_FAILPOINTS": f"{point}=kill"}
    killed = subprocess.run([sys.executable, "-c", ALTER, str(tmp_path)], env=env, timeout=60, check=False)
    assert killed.returncode == -9
    with LogWriter(tmp_path) as writer:
        added = len(writer.description.schema) == 3
        assert added is (point != "log.describe.before")
        if not added:
            writer.add_fields((WET,))
        append(writer, (20, 2, True))
        assert (writer.damage, writer.end) == ([], 2)
    assert read(LogReader(tmp_path)) == [(10, 1, None), (20, 2, True)]


@pytest.mark.parametrize(
    "fault", ["log.describe=enospc", "log.create=enospc", "log.rename=eio", "log.seal=eio"]
)
def test_a_full_disk_leaves_a_log_that_can_be_opened_again(tmp_path: Path, fault: str) -> None:
    with LogWriter(tmp_path, OLD) as writer:
        append(writer, (10, 1))
    env = {**os.environ, "MAVSTREAM_FAILPOINTS": fault}
    failed = subprocess.run(
        [sys.executable, "-c", ALTER, str(tmp_path)], env=env, timeout=60, check=False, capture_output=True
    )
    assert failed.returncode == 1
    with LogWriter(tmp_path) as writer:
        if fault.startswith("log.describe"):
            writer.add_fields((WET,))
        append(writer, (20, 2, None))
    assert read(LogReader(tmp_path)) == [(10, 1, None), (20, 2, None)]


def test_a_log_gets_another_schema_and_its_rows_keep_theirs(tmp_path: Path) -> None:
    other, third = Schema((ROOM, N)), Schema((N,))
    with LogWriter(tmp_path, LogDescription(Schema((N,)))) as writer:
        append(writer, (1,), (2,))
        reader = LogReader(tmp_path)
        cursor = reader.cursor(0)
        writer.change_schema(other)
        append(writer, ("attic", 3))
        writer.change_schema(other)
        assert len(writer.segments) == 2
        writer.change_schema(third)
        append(writer, (4,))
    spans = cursor.take(10)
    assert [frame.segment.layout.schema for frame, *_ in spans] == [third, other, third]
    assert gather(spans, ["n"])["n"].to_list(FieldType.INT) == [1, 2, 3, 4]
    assert spans[1][0].column("room").to_list(FieldType.STRING) == ["attic"]
    assert reader.description == load_description(tmp_path)
    assert [before for before, _ in reader.description.earlier] == [2, 3]
    with LogWriter(tmp_path) as writer:
        assert writer.description.schema == third
        writer.remove_before(3)
        writer.change_schema(other)
        assert [before for before, _ in writer.description.earlier] == [4]
        append(writer, (None, 5))
    assert gather(LogReader(tmp_path).cursor(4).take(1), ["room"])["room"].to_list(FieldType.STRING) == [None]


def test_a_schema_that_cannot_be_written_leaves_the_log_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LogWriter(tmp_path, LogDescription(Schema((N,)))) as writer:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="full"):
                writer.change_schema(Schema((ROOM,)))
        append(writer, (1,))
        assert writer.description.schema == Schema((N,))


def full(_: int) -> None:
    raise OSError("the disk is full")
