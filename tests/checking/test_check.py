"""`mavstream check` finds damage in every kind of file, and repairs it without losing intact rows."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from tests.support.damaged_files import flip, frame_offsets, read_all, segments
from typer.testing import CliRunner

from mavstream_protocol.schema import Field, FieldType, Schema
from mavstream_protocol.streams import StreamSpec
from mavstream_server.catalog.catalog import Catalog
from mavstream_server.checking.commands import app
from mavstream_server.checking.data import check_data
from mavstream_server.columns.column import Column
from mavstream_server.core.clock import SystemClock
from mavstream_server.core.settings import Settings
from mavstream_server.core.storage.data_directory import DataUnusable, locked
from mavstream_server.core.storage.data_format import open_format
from mavstream_server.log import LogDescription, LogOptions, LogReader, LogWriter
from mavstream_server.tables.store import TableRows, TableStore

SCHEMA = Schema((Field("n", FieldType.INT), Field("s", FieldType.STRING)))
SMALL = LogOptions(segment_bytes=4096)
ROWS = {n: (n, f"text {n % 5}") for n in range(100)}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a stream, a result log and a table."""
    settings = Settings(data=tmp_path / "data")
    fields = [{"name": "n", "type": "int"}, {"name": "s", "type": "string"}]
    catalog = Catalog(settings.catalog_file)
    catalog.add_stream(StreamSpec.model_validate({"name": "readings", "fields": fields}))
    catalog.close()
    for log in (settings.streams_directory / "readings", settings.results_directory / "hot-1"):
        with LogWriter(log, LogDescription(SCHEMA), SMALL) as writer:
            for n, text in ROWS.values():
                columns = {
                    "n": Column.from_list(FieldType.INT, [n]),
                    "s": Column.from_list(FieldType.STRING, [text]),
                }
                writer.append(columns, 1, 1000 + n)
    table = TableRows(Schema((Field("h", FieldType.INT),)), {"h": Column.from_list(FieldType.INT, [1, 2])}, 2)
    store = TableStore(settings, SystemClock())
    asyncio.run(store.put("homes", table))
    store.close()
    return settings.data


def run(data: Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(data), *options])
    return result.exit_code, result.output


def test_intact_data_is_reported_as_intact(data: Path) -> None:
    code, output = run(data)
    assert code == 0
    assert "200 intact rows, 0 damaged places" in output


def test_each_damage_is_reported_with_file_offset_and_rows(data: Path) -> None:
    log = data / "streams" / "readings"
    file, offset, nbytes = frame_offsets(log)[7]
    flip(file, offset + 30)
    code, output = run(data)
    assert code == 1
    assert f"{file}: {nbytes} bytes at offset {offset}: the checksum is wrong; rows 7 to 7 are lost" in output
    assert "199 intact rows, 1 damaged places with 1 lost rows, 0 repaired" in output
    before = {path: path.read_bytes() for path in log.iterdir()}
    check_data(data)
    assert {path: path.read_bytes() for path in log.iterdir()} == before


@pytest.mark.parametrize("place", [0, 10, 20, 114, 118])
def test_a_repair_keeps_all_other_rows_and_the_second_check_is_clean(data: Path, place: int) -> None:
    for log in (data / "streams" / "readings", data / "results" / "hot-1"):
        offsets = frame_offsets(log)
        for position in (0, 7, 99):
            flip(offsets[position][0], offsets[position][1] + place)
    code, output = run(data, "--repair")
    assert code == 1
    assert "recorded the loss, the bytes are in" in output
    assert run(data)[0] == 0
    for log in (data / "streams" / "readings", data / "results" / "hot-1"):
        rows, gaps = read_all(LogReader(log), "n", "s")
        assert rows == {n: row for n, row in ROWS.items() if n not in (0, 7, 99)}
        assert [(gap.start, gap.stop) for gap in gaps] == [(0, 1), (7, 8), (99, 100)]
        assert len(list(log.glob("*.damaged"))) == 3
        with LogWriter(log, options=SMALL) as writer:
            assert (writer.end, writer.damage) == (100, [])


@pytest.mark.parametrize("word", range(16))
def test_a_damaged_header_is_written_again(data: Path, word: int) -> None:
    log = data / "streams" / "readings"
    for file in (segments(log)[1], segments(log)[-1]):
        intact = file.read_bytes()
        flip(file, 8 * word)
        code, output = run(data, "--repair")
        assert code == 1
        assert "rewrote the header" in output
        assert file.read_bytes() == intact
        assert run(data)[0] == 0
        with LogWriter(log, options=SMALL) as writer:
            assert writer.end == 100
        assert read_all(LogReader(log), "n", "s") == (ROWS, [])


def test_a_repair_of_header_and_last_frame_does_not_free_positions(data: Path) -> None:
    log = data / "streams" / "readings"
    file, offset, _ = frame_offsets(log)[99]
    flip(file, 3, offset + 20)
    assert run(data, "--repair")[0] == 1
    assert run(data)[0] == 0
    with LogWriter(log, options=SMALL) as writer:
        assert writer.end >= 100
    rows, (gap,) = read_all(LogReader(log), "n", "s")
    assert rows == {n: ROWS[n] for n in range(99)}
    assert (gap.start, gap.stop) == (99, writer.end)


def test_missing_segments_descriptions_and_streams_are_reported(data: Path) -> None:
    log = data / "streams" / "readings"
    segments(log)[1].unlink()
    assert "the file behind it is missing" in run(data)[1]
    (log / "log.json").write_text("{}")
    assert "not a log description" in run(data)[1]
    shutil.rmtree(log)
    assert "the files of the stream are missing" in run(data)[1]


def test_damaged_tables_and_catalogs_are_reported(data: Path) -> None:
    (version,) = (data / "tables" / "homes").glob("*.version")
    flip(version, version.stat().st_size - 64)
    assert "the checksum is wrong: it is damaged" in run(data)[1]
    catalog = data / "catalog.sqlite"
    os.truncate(catalog, 5000)
    code, output = run(data)
    assert code == 1
    assert "is not an intact SQLite file" in output


def test_the_format_version_is_reported_and_a_newer_one_is_not_checked(data: Path) -> None:
    code, output = run(data)
    assert code == 0
    assert "format version 1; the next start upgrades it to 2" in output
    assert not (data / "FORMAT").exists()
    open_format(data)
    code, output = run(data)
    assert code == 0
    assert "format version 2\n" in output
    (data / "FORMAT").write_bytes(b"\0" * 30)
    code, output = run(data)
    assert code == 1
    assert "FORMAT is garbled" in output
    assert "200 intact rows, 1 damaged places" in output
    (data / "FORMAT").write_text('{"version": 3, "release": "9.0.0"}')
    code, output = run(data, "--repair")
    assert code == 2
    assert "has format version 3, written by release 9.0.0" in output


def test_a_directory_in_use_or_missing_is_not_checked(data: Path) -> None:
    with locked(data):
        code, output = run(data)
    assert code == 2
    assert "is in use by another server" in output
    with pytest.raises(DataUnusable, match="there is no data directory"):
        check_data(data / "nothing")
