"""Files that were dropped onto a stream: read in pieces, with the rows that do not fit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from mavstream_page.data.row_files import MOST_ERRORS, RowFile
from mavstream_protocol.schema import Field, FieldType, Schema

SCHEMA = Schema(
    (
        Field("at", FieldType.TIMESTAMP),
        Field("room", FieldType.STRING),
        Field("celsius", FieldType.FLOAT, nullable=True),
    )
)
HEAD, NOON = "at,room,celsius\n", "2026-01-01T12:00:00Z"


def read(tmp_path: Path, text: str, name: str = "rows.csv") -> tuple[list[pa.RecordBatch], list[str]]:
    path = tmp_path / "spooled"
    path.write_text(text)
    file = RowFile(path, name, SCHEMA)
    return list(file.pieces()), file.errors


def test_a_csv_file_is_read_in_the_types_of_the_stream(tmp_path: Path) -> None:
    pieces, errors = read(tmp_path, f'{HEAD}{NOON},"hall, east",21.5\n{NOON},,\n')
    assert not errors
    assert [row for piece in pieces for row in piece.drop_columns(["at"]).to_pylist()] == [
        {"room": "hall, east", "celsius": 21.5},
        {"room": "", "celsius": None},
    ]


def test_each_row_that_does_not_fit_is_named(tmp_path: Path) -> None:
    good = f"{NOON},hall,20.5\n"
    text = f"{HEAD}{good}{NOON},hall,warm\n{good}soon,hall,20\n"
    assert read(tmp_path, text)[1] == [
        "row 2: field 'celsius' expects a float, got \"warm\"",
        next(error for error in read(tmp_path, text)[1] if error.startswith("row 4: field 'at' expects")),
    ]


def test_rows_are_counted_over_pieces(tmp_path: Path) -> None:
    good = f"{NOON},{'hall' * 20},20.5\n"
    text = f"{HEAD}{good * 30_000}{NOON},hall,warm\n"
    pieces, errors = read(tmp_path, text)
    assert len(pieces) > 1
    assert errors[0].startswith("row 30001: field 'celsius'")
    assert read(tmp_path, f"{HEAD}{good * 30_000}{NOON},hall\n")[1] == [
        f"CSV parse error: row 30001: Expected 3 columns, got 2: {NOON},hall"
    ]


def test_reading_ends_after_ten_errors(tmp_path: Path) -> None:
    assert len(read(tmp_path, HEAD + f"{NOON},hall,warm\n" * 50)[1]) == MOST_ERRORS


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("at,room,celsius,door\n1,a,2,3\n", "column 'door' is not in the stream"),
        ("room,celsius\nhall,2\n", "column 'at' is missing"),
        ("", "Empty CSV file"),
    ],
)
def test_a_file_with_other_columns_is_refused_at_once(tmp_path: Path, text: str, said: str) -> None:
    pieces, errors = read(tmp_path, text)
    assert not pieces
    assert len(errors) == 1
    assert said in errors[0]


def test_a_parquet_file_is_read_in_pieces(tmp_path: Path) -> None:
    rows = 40_000
    table = pa.table(
        {
            "celsius": pa.array([1.5] * rows),
            "room": pa.array(["hall"] * rows),
            "at": pa.array(range(rows), pa.timestamp("us", "UTC")),
        }
    )
    path = tmp_path / "rows"
    parquet.write_table(table, path)
    file = RowFile(path, "rows.PARQUET", SCHEMA)
    pieces = list(file.pieces())
    assert file.errors == []
    assert len(pieces) == 3
    assert sum(piece.num_rows for piece in pieces) == file.rows == rows
    assert pieces[0].schema.names == ["at", "room", "celsius"]


def test_something_else_is_no_parquet_file(tmp_path: Path) -> None:
    assert "Parquet" in read(tmp_path, "at,room\n", "rows.parquet")[1][0]
    with pytest.raises(ValueError, match=r"must end in \.csv or \.parquet"):
        read(tmp_path, "", "rows.xlsx")
