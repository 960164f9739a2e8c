"""The format version of a data directory: written, upgraded, and refused with what to do."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from mavstream_server.core.storage.data_directory import DataUnusable, locked
from mavstream_server.core.storage.data_format import (
    FORMAT_VERSION,
    DataFormat,
    FormatGarbled,
    check_format,
    open_format,
)

PRESENT = {"version": FORMAT_VERSION, "release": version("mavstream")}


def stamp(data: Path) -> object:
    return json.loads((data / "FORMAT").read_bytes())


def test_a_new_directory_gets_the_present_version_which_only_its_owner_reads(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with locked(data):
        assert check_format(data) is None
        assert open_format(data).version == FORMAT_VERSION
        assert stamp(data) == PRESENT
        assert (data / "FORMAT").stat().st_mode & 0o777 == 0o600
        assert sorted(path.name for path in data.iterdir()) == ["FORMAT", "server.lock"]
        assert check_format(data) == open_format(data) == tuple(PRESENT.values())


def test_a_directory_whose_first_start_died_is_new(tmp_path: Path) -> None:
    with locked(tmp_path):
        (tmp_path / "FORMAT.new").write_bytes(b'{"ver')
        assert open_format(tmp_path).version == FORMAT_VERSION
    assert not (tmp_path / "FORMAT.new").exists()


def test_content_without_a_version_is_version_1_and_is_stamped_in_place(tmp_path: Path) -> None:
    (tmp_path / "streams").mkdir()
    assert check_format(tmp_path) == DataFormat(1, "an unknown release")
    assert not (tmp_path / "FORMAT").exists(), "a check changes nothing"
    assert open_format(tmp_path).version == 1
    assert stamp(tmp_path) == PRESENT
    assert open_format(tmp_path).version == FORMAT_VERSION


def test_the_same_version_of_another_release_is_left_as_it_is(tmp_path: Path) -> None:
    written = json.dumps({"version": FORMAT_VERSION, "release": "0.0.9"})
    (tmp_path / "FORMAT").write_text(written)
    assert open_format(tmp_path) == (FORMAT_VERSION, "0.0.9")
    assert (tmp_path / "FORMAT").read_text() == written


def test_a_newer_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "FORMAT").write_text('{"version": 7, "release": "3.1.0"}')
    with pytest.raises(DataUnusable) as caught:
        open_format(tmp_path)
    text = str(caught.value)
    for part in (
        str(tmp_path),
        "format version 7",
        "reads versions 1 to 2",
        "use release 3.1.0 or a later one",
    ):
        assert part in text
    assert not isinstance(caught.value, FormatGarbled)
    assert (tmp_path / "FORMAT").read_text() == '{"version": 7, "release": "3.1.0"}'


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\x00",
        b"2",
        b"[]",
        b"{}",
        b'{"version": 2}',
        b'{"version": 0, "release": "1"}',
        b'{"version": "2", "release": "1"}',
        b'{"version": true, "release": "1"}',
        b"[" * 4096,
    ],
)
def test_a_garbled_version_is_refused_and_not_changed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "FORMAT").write_bytes(content)
    with pytest.raises(
        FormatGarbled, match=r"FORMAT is garbled: expected .* got .*; restore it from a backup"
    ):
        open_format(tmp_path)
    assert (tmp_path / "FORMAT").read_bytes() == content


def test_a_directory_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "FORMAT").mkdir()
    with pytest.raises(FormatGarbled, match="cannot be read"):
        open_format(tmp_path)
