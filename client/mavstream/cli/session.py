"""Options that the sub-commands share: the server, and the output format."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mavstream._client import Client


class Output(StrEnum):
    """The format of output."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Session:
    """The server that a command talks to."""

    url: str
    token: str | None
    timeout: float

    def connect(self) -> Client:
        """Return a client, to be closed by the caller."""
        # Imported here: `--help` does not need it.
        from mavstream._client import Client

        return Client(self.url, token=self.token, timeout=self.timeout)


def client_of(context: typer.Context) -> Client:
    """Return a client for the server that the command line names."""
    session: Session = context.obj
    return session.connect()


OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="A table for people, or JSON for programs.")
]
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A JSON or YAML file.", dir_okay=False)]
QueryArgument = Annotated[str, typer.Argument(metavar="QUERY", help="Name or id of a query.")]
StreamArgument = Annotated[str, typer.Argument(metavar="STREAM", help="Name of a stream.")]
