"""Options that the sub-commands share: the server, and the output format."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from mavstream._client import Client


class Output(StrEnum):
    """The format of output."""

    TABLE = "table"
    JSON = "json"


@dataclass(slots=True)
class Session:
    """The server that a command talks to; options behind the sub-command change it."""

    url: str
    token: str | None = None
    token_file: Path | None = None
    timeout: float = 10.0

    def choose(self, **given: Any) -> None:
        """Take options that were given behind the sub-command."""
        if "token_file" in given:
            self.token = None
        for name, value in given.items():
            setattr(self, name, value)

    def secret(self) -> str | None:
        """Return the token, or that in the file; raises BadParameter."""
        if self.token is not None or self.token_file is None:
            return self.token
        try:
            return self.token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise typer.BadParameter(f"--token-file: cannot read '{self.token_file}': {reason}") from None

    def connect(self) -> Client:
        """Return a client, to be closed by the caller."""
        # Imported here: `--help` does not need it.
        from mavstream._client import Client

        return Client(self.url, token=self.secret(), timeout=self.timeout)


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
