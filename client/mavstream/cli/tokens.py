"""`mavstream token`: the file of tokens that a server reads, without a connection to the server."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from mavstream.cli.output import show_list
from mavstream.cli.session import Output, OutputOption
from mavstream_protocol import InvalidObject, ProblemItem
from mavstream_protocol.model_errors import quoted, sentence
from mavstream_protocol.tokens import Role, TokensFile, TokenSpec, hash_secret, new_secret

app = typer.Typer(
    no_args_is_help=True, help="Manage the tokens file of a server; send it SIGHUP to apply changes."
)

FileOption = Annotated[
    Path,
    typer.Option(
        "--file", "-f", envvar="MAVSTREAM_TOKENS_FILE", show_envvar=True, help="The tokens file of a server."
    ),
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the holder.")]


@app.command("create")
def create(
    name: NameArgument,
    role: Annotated[Role, typer.Option(help="What the holder may do.")],
    file: FileOption = Path("tokens.json"),
    streams: Annotated[
        list[str] | None, typer.Option(help="Pattern of streams it may use, such as 'roof_*'; repeatable.")
    ] = None,
    classes: Annotated[
        list[str] | None, typer.Option(help="Pattern of classes its queries may have; repeatable.")
    ] = None,
    queries: Annotated[int | None, typer.Option(help="Queries that it may own.")] = None,
    state: Annotated[str | None, typer.Option(help="State of its queries together, such as 100MiB.")] = None,
    rows_per_second: Annotated[int | None, typer.Option(help="Rows that it may append per second.")] = None,
    connections: Annotated[int | None, typer.Option(help="Open requests and websockets.")] = None,
    secret_file: Annotated[
        Path | None, typer.Option(help="Write the secret to this file instead of printing it.")
    ] = None,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Do nothing if the token and its secret file exist.")
    ] = False,
) -> None:
    """Create a token and print its secret, which is stored nowhere else: the file holds its hash."""
    secret = new_secret()
    quotas = {
        "queries": queries,
        "state": state,
        "rows_per_second": rows_per_second,
        "connections": connections,
    }
    given = {"streams": streams, "classes": classes}
    with _changed(file) as tokens:
        known = next((token for token in tokens if token.name == name), None)
        if known is not None and if_missing and secret_file is not None and secret_file.exists():
            return
        if known is not None and not if_missing:
            raise _refused("token_exists", f"'{file}' has a token '{name}': remove it first")
        try:
            made = TokenSpec.model_validate(
                {
                    "name": name,
                    "role": role,
                    "sha256": hash_secret(secret),
                    "quotas": quotas,
                    "created": datetime.now(UTC).isoformat(timespec="seconds"),
                    **{key: tuple(value) for key, value in given.items() if value},
                }
            )
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise _refused(
                "invalid_token", sentence(first, quoted(first, "the token"), shown=False)
            ) from None
        # The secret first: a token whose secret is lost could not be used.
        if secret_file is not None:
            _write(secret_file, secret + "\n")
        tokens[:] = [*(token for token in tokens if token.name != name), made]
    if secret_file is None:
        typer.echo(secret)


@app.command("list")
def list_tokens(file: FileOption = Path("tokens.json"), output: OutputOption = Output.TABLE) -> None:
    """List the tokens of a file."""
    show_list(
        _read(file),
        output,
        ["token", "role", "streams", "classes", "quotas", "created"],
        lambda one: (
            one.name,
            one.role.value,
            " ".join(one.streams),
            " ".join(one.classes),
            " ".join(f"{key}={value}" for key, value in one.quotas.model_dump(exclude_none=True).items()),
            one.created,
        ),
    )


@app.command("remove")
def remove(name: NameArgument, file: FileOption = Path("tokens.json")) -> None:
    """Remove a token; after SIGHUP the server no longer accepts it and closes its websockets."""
    with _changed(file) as tokens:
        if not any(token.name == name for token in tokens):
            known = ", ".join(token.name for token in tokens) or "none"
            raise _refused("unknown_token", f"'{file}' has no token '{name}': there are {known}")
        tokens[:] = [token for token in tokens if token.name != name]


@contextmanager
def _changed(file: Path) -> Iterator[list[TokenSpec]]:
    """Yield the tokens of a file to be changed, and replace the file; others wait meanwhile."""
    try:
        folder = os.open(file.absolute().parent, os.O_RDONLY)
    except OSError as error:
        raise _refused("unreadable_file", f"'{file.parent}' cannot be used: {error.strerror}") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        tokens = _read(file) if file.exists() else []
        yield tokens
        text = TokensFile(tokens=tuple(tokens)).model_dump_json(indent=2, exclude_defaults=True)
        _write(file, text + "\n")
    finally:
        os.close(folder)


def _read(file: Path) -> list[TokenSpec]:
    try:
        return list(TokensFile.model_validate_json(file.read_bytes()).tokens)
    except OSError as error:
        raise _refused("unreadable_file", f"'{file}' cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        reason = sentence(first, quoted(first, "it"), shown=False)
        raise _refused("unreadable_file", f"'{file}' is not a file of tokens: {reason}") from None


def _write(file: Path, text: str) -> None:
    """Replace a file at once, readable by its owner only."""
    beside = file.with_name(f".{file.name}.new")
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as new:
            new.write(text)
            new.flush()
            os.fsync(new.fileno())
        beside.replace(file)
    except OSError as error:
        raise _refused("unreadable_file", f"'{file}' cannot be written: {error.strerror}") from None


def _refused(code: str, detail: str) -> InvalidObject:
    return InvalidObject([ProblemItem(pointer="token", code=code, detail=detail)])
