"""Conversion of raw logs: good lines become rows, bad lines are kept with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.support.spark.answers import rows_of

from mavstream_protocol.instants import parse_instant
from mavstream_protocol.manifest import Manifest
from mavstream_spark.convert.casas import CasasReader
from mavstream_spark.convert.conversion import convert
from mavstream_spark.convert.csv_lines import CsvReader, parse_fields
from mavstream_spark.errors import InvalidJob, UnreadableInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ("tests.support.spark.fixtures",)
pytestmark = pytest.mark.xdist_group("spark")

CASAS = """\
2010-11-04 00:03:50.209589 M003 ON Sleeping begin
2010-11-04 00:03:57.399391\tM003\tOFF
2010-11-04 00:15:08.984841 T002 21.5
2010-11-05 02:32:33.351906 D001 OPEN Leave_Home  begin
2010-11-04 23:59:59 MA020 OFF

2010-11-04 05:40:51.303739 I006 ABSENT
2010-11-04 05:40:51.303739 M004 ONF
2010-11-04 05:40 M004 ON
2010-13-04 05:40:51 M004 ON
2010-11-04 05:40:51.303739 T001
2010-11-04 05:40:51.303739 T001 warm
garbage
"""


def rows(folder: Path, manifest: Manifest, stream: str) -> list[tuple[object, ...]]:
    paths = manifest.stream(stream).paths(folder)
    return rows_of(pa.concat_tables(pyarrow.parquet.read_table(path, partitioning=None) for path in paths))


def bad_lines(folder: Path, manifest: Manifest) -> dict[str, str]:
    assert manifest.bad_lines is not None
    texts = [(folder / file.path).read_text() for file in manifest.bad_lines.files]
    found = [json.loads(line) for text in texts for line in text.splitlines()]
    assert len(found) == manifest.bad_lines.rows
    assert found == sorted(found, key=lambda row: (row["file"], row["number"]))
    for row in found:
        lines = (folder.parent / row["file"]).read_text().splitlines()
        assert lines[row["number"] - 1] == row["line"]
    return {row["line"]: row["reason"] for row in found}


def test_casas_lines_are_converted_to_the_streams_of_their_sensors(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "log.txt").write_text(CASAS)
    out = tmp_path / "out"
    made = convert(spark, [str(tmp_path / "log.txt")], str(out), CasasReader())
    assert Manifest.load(out) == made
    # Set for the job only.
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    assert set(made.streams) == {"motion", "doors", "temperature", "sensors"}
    at = parse_instant
    assert rows(out, made, "motion") == [
        (at("2010-11-04T00:03:50.209589Z"), "M003", True, "Sleeping begin"),
        (at("2010-11-04T00:03:57.399391Z"), "M003", False, None),
        (at("2010-11-04T23:59:59Z"), "MA020", False, None),
    ]
    assert rows(out, made, "temperature") == [(at("2010-11-04T00:15:08.984841Z"), "T002", 21.5, None)]
    assert rows(out, made, "doors") == [
        (at("2010-11-05T02:32:33.351906Z"), "D001", True, "Leave_Home  begin")
    ]
    assert rows(out, made, "sensors") == [(at("2010-11-04T05:40:51.303739Z"), "I006", "ABSENT", None)]
    assert (made.begin, made.end) == (at("2010-11-04"), at("2010-11-06"))


def test_bad_casas_lines_are_kept_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text(CASAS)
    made = convert(spark, [str(tmp_path / "*.txt")], str(tmp_path / "out"), CasasReader())
    assert made.bad_lines is not None
    assert made.bad_lines.reasons == {"no time": 2, "no value": 2, "too few fields": 2}
    assert bad_lines(tmp_path / "out", made) == {
        "2010-11-04 05:40:51.303739 M004 ONF": "expected ON or OFF from sensor M004, found ONF",
        "2010-11-04 05:40 M004 ON": (
            "expected a time such as 2010-11-04 00:03:50.209589, found 2010-11-04 05:40"
        ),
        "2010-13-04 05:40:51 M004 ON": (
            "expected a time such as 2010-11-04 00:03:50.209589, found 2010-13-04 05:40:51"
        ),
        "2010-11-04 05:40:51.303739 T001": "expected date, time, sensor and value, found 3 of these",
        "2010-11-04 05:40:51.303739 T001 warm": "expected a number from sensor T001, found warm",
        "garbage": "expected date, time, sensor and value, found 1 of these",
    }


@pytest.mark.long
def test_csv_lines_become_rows_or_are_kept_as_bad_lines(spark: SparkSession, tmp_path: Path) -> None:
    header = "at,home,room,celsius,on"
    lines = [
        "2026-03-01T00:00:02Z,1,hall,20.5,true",
        '2026-03-01 00:00:01,2,"living, large",,no',
        "2026-03-01T01:00:00+01:00,3,,-4,1",
        "yesterday,1,hall,20,true",
        "2026-03-01T00:00:02Z,one,hall,20,true",
        "2026-03-01T00:00:02Z,,hall,20,true",
        "2026-03-01T00:00:02Z,1,hall,20",
        "2026-03-01T00:00:02Z,1,hall,20,perhaps",
    ]
    for name, part in (("a.csv", lines[:4]), ("b.csv", lines[4:])):
        (tmp_path / name).write_text("\n".join([header, *part, ""]))
    spec = parse_fields(
        "rooms", "at timestamp, home int, room string null, celsius float null, on bool", None
    )
    out = tmp_path / "out"
    paths = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    made = convert(spark, paths, str(out), CsvReader(spec, header))
    midnight = parse_instant("2026-03-01")
    assert rows(out, made, "rooms") == [
        (midnight, 3, None, -4.0, True),
        (midnight + 1_000_000, 2, "living, large", None, False),
        (midnight + 2_000_000, 1, "hall", 20.5, True),
    ]
    kept = bad_lines(out, made)
    assert [kept[line] for line in lines[3:]] == [
        "column at: expected a time such as 2026-03-01T12:00:00Z, found yesterday",
        "column home: expected a whole number, found one",
        "column home is empty",
        "expected 5 values, found 4",
        "column on: expected true or false, found perhaps",
    ]


@pytest.mark.long
def test_files_without_a_good_line_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("no\nlog\n")
    with pytest.raises(UnreadableInput, match=r"no line that could be converted \(2 times too few fields\)"):
        convert(spark, [str(tmp_path / "log.txt")], str(tmp_path / "out"), CasasReader())
    assert not (tmp_path / "out").exists()
    with pytest.raises(UnreadableInput, match="nowhere"):
        convert(spark, [str(tmp_path / "nowhere")], str(tmp_path / "out"), CasasReader())


@pytest.mark.long
def test_bad_lines_of_files_that_are_read_in_blocks_have_their_numbers(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name, count in (("a.txt", 300), ("b.txt", 120)):
        good = [f"2010-11-04 00:{number // 60:02}:{number % 60:02} M003 ON" for number in range(count)]
        lines = [f"bad {name} {number}" if number % 17 == 3 else line for number, line in enumerate(good)]
        lines[40:40] = ["", "  ", "", "bad ümlaut\t" + name]
        (tmp_path / name).write_text("\n".join(lines))
    size = "spark.sql.files.maxPartitionBytes"
    before = spark.conf.get(size)
    spark.conf.set(size, "1000")
    try:
        made = convert(spark, [str(tmp_path / "*.txt")], str(tmp_path / "out"), CasasReader())
    finally:
        spark.conf.set(size, before)
    assert len(bad_lines(tmp_path / "out", made)) == 18 + 7 + 2


def test_invalid_stream_fields_are_refused() -> None:
    with pytest.raises(InvalidJob, match="'at' is not a name, a type"):
        parse_fields("rooms", "at", None)
    with pytest.raises(InvalidJob, match="write them like"):
        parse_fields("rooms", "at date", None)
    with pytest.raises(UnreadableInput, match="has no column celsius"):
        CsvReader(parse_fields("rooms", "at timestamp, celsius float", None), "at,home")
    with pytest.raises(UnreadableInput, match="name a timestamp column with --time"):
        CsvReader(parse_fields("rooms", "home int", None), "at,home")
