"""CSV files as people have them: headers, separators, times, and rows that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from mavstream_feeder import FileSource, UnreadableFile
from mavstream_feeder.input.inference import inferred
from mavstream_protocol import FieldType, StreamSpec
from mavstream_protocol.row_files.csv_rows import CsvRows
from mavstream_protocol.row_files.json_lines import JsonRows
from mavstream_protocol.row_files.names import column_names
from mavstream_protocol.row_files.reading import BadRows, Reading
from mavstream_protocol.tuples import rows_of

SPEC = StreamSpec.model_validate(
    {
        "name": "readings",
        "fields": [
            {"name": "at", "type": "timestamp"},
            {"name": "room", "type": "string", "nullable": True},
            {"name": "temp", "type": "float"},
            {"name": "n", "type": "int", "nullable": True},
            {"name": "on", "type": "bool", "nullable": True},
        ],
        "event_time": "at",
    }
)


def parsed(text: str, reading: Reading) -> list[dict[str, object]]:
    header, _, rest = text.partition("\n")
    names = column_names(header.split(reading.delimiter), reading.rename)
    return rows_of(CsvRows(names, SPEC.schema(), reading).parse(rest.encode(), 2))


def skipping() -> Reading:
    return Reading(bad_rows=BadRows("skip"))


@pytest.mark.parametrize(
    ("headers", "names"),
    [
        (["Temperature (C)", "room name", "2nd", "at"], ("Temperature_C", "room_name", "_2nd", "at")),
        (["a", "a", "", "€"], ("a", "a_2", "column_3", "column_4")),
        (["window_start", " x ", "_id"], ("window_start_", "x", "_id")),
    ],
)
def test_names_are_made_of_headers(headers: list[str], names: tuple[str, ...]) -> None:
    assert column_names(headers) == names


def test_columns_are_renamed_by_header_or_by_made_name() -> None:
    assert column_names(["Temp (C)", "Room No"], {"Temp (C)": "temp", "Room_No": "room"}) == ("temp", "room")
    with pytest.raises(ValueError, match="no column 'Tmp' to rename: there are 'Temp'"):
        column_names(["Temp"], {"Tmp": "t"})
    with pytest.raises(ValueError, match="two columns would be named 'a'"):
        column_names(["a", "b"], {"b": "a"})
    with pytest.raises(ValueError, match="not an identifier"):
        column_names(["a"], {"a": "b c"})


def test_bad_rows_are_told_with_line_column_and_value_and_the_others_are_read() -> None:
    reading = skipping()
    text = (
        "at,room,temp,n,on\n"
        "2026-01-01T00:00:00Z,a,1.5,1,true\n"
        "\n"
        "2026-01-01T00:00:01Z,b,warm,2,1\n"
        "yesterday,c,2.5,x,no\n"
        "2026-01-01T00:00:03Z,d\n"
        "2026-01-01T00:00:04Z,e,,5,\n"
        "2026-01-01T00:00:05Z,f,+3,99999999999999999999,FALSE\n"
        "2026-01-01T00:00:06Z,,1e3,NA,FALSE\n"
    )
    rows = parsed(text, reading)
    assert [(row["room"], row["temp"], row["n"], row["on"]) for row in rows] == [
        ("a", 1.5, 1, True),
        (None, 1000.0, None, False),
    ]
    assert reading.bad_rows.count == 5
    assert [str(row) for row in reading.bad_rows.shown] == [
        "line 4, column 'temp': 'warm' is no float",
        "line 5, column 'at': 'yesterday' is no timestamp",
        "line 6: '2026-01-01T00:00:03Z,d' has 2 columns, expected 5",
    ]


def test_bad_rows_are_written_to_a_file(tmp_path: Path) -> None:
    kept = tmp_path / "bad.csv"
    reading = Reading(bad_rows=BadRows(str(kept)))
    assert parsed("at,temp\nnow,1\n2026-01-01,2\n2026-01-02,\n", reading)[0]["temp"] == 2.0
    reading.bad_rows.close()
    assert kept.read_text().splitlines() == [
        "line,column,value,reason",
        "2,at,now,is no timestamp",
        '4,temp,,"is no value, which is needed"',
    ]


def test_the_first_bad_row_stops_where_that_is_wanted(tmp_path: Path) -> None:
    file = tmp_path / "readings.csv"
    file.write_text("at,temp\n2026-01-01,1\n2026-01-02,x\n")
    with pytest.raises(UnreadableFile, match="line 3, column 'temp': 'x' is no float; --bad-rows skip"):
        FileSource(file, SPEC).take(range(2))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("format_", "text", "instant"),
    [
        ("unix", "1767225600", "2026-01-01T00:00:00.000000Z"),
        ("unix", "1767225600.25", "2026-01-01T00:00:00.250000Z"),
        ("unix_ms", "1767225600250", "2026-01-01T00:00:00.250000Z"),
        ("unix_us", "1767225600250001", "2026-01-01T00:00:00.250001Z"),
        ("%d.%m.%Y %H:%M", "01.02.2026 13:05", "2026-02-01T13:05:00.000000Z"),
        ("%d.%m.%Y %H:%M:%S.%f %z", "01.02.2026 13:05:00.5 +0200", "2026-02-01T11:05:00.500000Z"),
        (None, "2026-02-01 13:05", "2026-02-01T13:05:00.000000Z"),
        (None, "2026-02-01T13:05:00+02:00", "2026-02-01T11:05:00.000000Z"),
    ],
)
def test_times_are_read_in_many_formats(format_: str | None, text: str, instant: str) -> None:
    reading = Reading(time_format=format_, bad_rows=BadRows("skip"))
    assert [row["at"] for row in parsed(f"at,temp\n{text},1\nnonsense,2\n{text},3\n", reading)] == [
        instant
    ] * 2
    assert reading.bad_rows.count == 1


def test_semicolons_and_decimal_commas() -> None:
    reading = Reading(delimiter=";", decimal=",", bad_rows=BadRows("skip"))
    assert parsed("at;temp;n\n2026-01-01;-3,25;7\n2026-01-02;1.2,3;8\n", reading)[0]["temp"] == -3.25
    assert reading.bad_rows.count == 1
    for wrong, words in (
        ({"delimiter": "||"}, "one character"),
        ({"decimal": ";"}, "decimal point"),
        ({"decimal": ","}, "are both"),
    ):
        with pytest.raises(ValueError, match=words):
            Reading(**wrong)  # type: ignore[arg-type]


def test_one_odd_cell_does_not_turn_a_column_into_text(tmp_path: Path) -> None:
    file = tmp_path / "readings.csv"
    lines = [f"2026-01-01 00:00:{second:02},{second},00{second},{second}.5\n" for second in range(60)]
    lines[41] = "n. a.,41,0041,-\n"
    file.write_bytes(b"\xef\xbb\xbfTime,No,Zip Code,Temperature (C)\r\n" + "".join(lines).encode())
    spec, remarks = inferred("readings", file)
    assert [(one.name, one.type, one.nullable) for one in spec.fields] == [
        ("Time", FieldType.TIMESTAMP, False),
        ("No", FieldType.INT, False),
        ("Zip_Code", FieldType.STRING, False),
        ("Temperature_C", FieldType.FLOAT, False),
    ]
    assert spec.event_time == "Time"
    assert remarks[0].endswith(
        "column 'Time' is taken for timestamp: 1 of 60 cells is none, first 'n. a.' in line 43"
    )
    assert "column 'Temperature_C' is taken for float" in remarks[1]


def test_unix_seconds_need_the_name_of_their_column(tmp_path: Path) -> None:
    file = tmp_path / "readings.csv"
    file.write_text("ts,v\n1767225600,1\n1767225601,2\n")
    reading = Reading(time_format="unix")
    with pytest.raises(UnreadableFile, match="--event-time with one of ts, v"):
        inferred("readings", file, None, reading)
    spec, _ = inferred("readings", file, "ts", reading)
    assert [one.type for one in spec.fields] == [FieldType.TIMESTAMP, FieldType.INT]


def test_bad_lines_of_json_are_left_out() -> None:
    reading = skipping()
    lines = b'{"at": "2026-01-01", "temp": 1}\n{"at": "2026-01-01"\n\n{"at": "x", "temp": 2}\n'
    batch = JsonRows(SPEC.schema(), reading).parse(lines, 10)
    assert batch.num_rows == 1
    assert [(row.line, row.column) for row in reading.bad_rows.shown] == [(11, None), (13, "at")]
    assert JsonRows(SPEC.schema(), skipping()).parse(b"{\n", 1).num_rows == 0
