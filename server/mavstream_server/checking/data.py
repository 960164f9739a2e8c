"""Check and repair of a whole data directory: stream logs, result logs, tables and the catalog."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mavstream_server.catalog.catalog import Catalog
from mavstream_server.checking.findings import Findings
from mavstream_server.checking.logs import check_log
from mavstream_server.core.errors import ServiceError
from mavstream_server.core.settings import Settings
from mavstream_server.core.storage.data_directory import DataUnusable, locked
from mavstream_server.core.storage.data_format import FORMAT_FILE, FormatGarbled, check_format
from mavstream_server.tables.directory import TableDescription, list_versions, table_names
from mavstream_server.tables.errors import TableFilesError
from mavstream_server.tables.file import VersionFile
from mavstream_server.tables.index_file import is_intact_index


def check_data(data: Path, *, repair: bool = False) -> Findings:
    """Check everything in a data directory that no server uses; raises DataUnusable."""
    if not data.is_dir():
        raise DataUnusable(f"there is no data directory {data}: give the --data of the server")
    settings, findings = Settings(data=data), Findings()
    with locked(data, create=False):
        _check_format(data, findings)
        _check_catalog(settings, findings)
        for path in _directories(settings.streams_directory, settings.results_directory):
            check_log(path, findings, repair=repair)
        for path in _directories(settings.tables_directory):
            _check_table(path, findings, repair)
    return findings


def _check_format(data: Path, findings: Findings) -> None:
    """Report a garbled version; raise DataUnusable for a newer one, whose files may be different."""
    try:
        found = check_format(data)
    except FormatGarbled as error:
        findings.files += 1
        findings.broken(data / FORMAT_FILE, str(error))
        return
    findings.format_version = None if found is None else found.version
    findings.files += (data / FORMAT_FILE).exists()


def _directories(*parents: Path) -> Iterable[Path]:
    for parent in parents:
        if parent.is_dir():
            yield from sorted(
                path for path in parent.iterdir() if path.is_dir() and not path.name.startswith(".")
            )


def _check_catalog(settings: Settings, findings: Findings) -> None:
    file = settings.catalog_file
    findings.files += 1
    if not file.exists():
        findings.broken(file, "the catalog is missing: restore it from a backup")
        return
    try:
        catalog = Catalog(file, tables=table_names(settings.tables_directory))
    except ServiceError as error:
        findings.broken(file, error.detail)
        return
    try:
        names = {spec.name for spec in catalog.streams()}
        catalog.classes()
        catalog.queries()
    except ServiceError as error:
        findings.broken(file, error.detail)
        return
    finally:
        catalog.close()
    for name in sorted(names):
        path = settings.streams_directory / name
        if not path.is_dir():
            findings.broken(path, "the files of the stream are missing: restore them, or remove the stream")


def _check_table(path: Path, findings: Findings, repair: bool) -> None:
    try:
        TableDescription.load(path)
    except TableFilesError as error:
        findings.broken(path / "table.json", str(error))
        return
    for name in list_versions(path):
        findings.files += 1
        try:
            VersionFile(name.within(path))
        except TableFilesError as error:
            findings.broken(name.within(path), str(error))
    for index in sorted(path.glob("*.index")):
        findings.files += 1
        if not is_intact_index(index):
            reason = "the index is damaged; it is rebuilt if its file is removed"
            if repair:
                findings.broken(index, reason, "removed it")
                index.unlink()
            else:
                findings.broken(index, reason)
