"""The `mavstream check` command: checks the data directory of a stopped server, and repairs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mavstream_protocol.errors import MavstreamError

app = typer.Typer(no_args_is_help=False)


@app.command()
def check(
    data: Annotated[Path, typer.Argument(help="Data directory of a server that is stopped.")],
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair what can be repaired without losing intact rows.")
    ] = False,
) -> None:
    """Check all files of a data directory. Exit code 0: intact, 1: damaged, 2: cannot be checked."""
    try:
        # Imported here, so that `--help` does not wait for it.
        from mavstream_server.checking.data import check_data

        findings = check_data(data, repair=repair)
    except MavstreamError as error:
        typer.echo(f"mavstream check: {error}", err=True)
        raise typer.Exit(2) from None
    for finding in findings.found:
        typer.echo(f"{finding.damage}" + (f"; {finding.repair}" if finding.repair else ""))
    if findings.format_version is not None:
        typer.echo(f"format version {findings.format_version}" + _upgrade(findings.format_version))
    repaired = sum(finding.repair is not None for finding in findings.found)
    lost = sum(finding.damage.rows for finding in findings.found)
    typer.echo(
        f"{findings.files} files, {findings.rows} intact rows, {len(findings.found)} damaged places with "
        f"{lost} lost rows, {repaired} repaired"
    )
    if findings.found:
        raise typer.Exit(1)


def _upgrade(found: int) -> str:
    from mavstream_server.core.storage.data_format import FORMAT_VERSION

    return "" if found == FORMAT_VERSION else f"; the next start upgrades it to {FORMAT_VERSION}"


if __name__ == "__main__":
    app()
