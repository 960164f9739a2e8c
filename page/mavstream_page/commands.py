"""The `mavstream page` command: serves the browser page of a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=False, add_completion=False)


@app.command()
def page(
    url: Annotated[
        str, typer.Option(envvar="MAVSTREAM_URL", help="Address of the server.")
    ] = "http://127.0.0.1:8000",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="TCP port to listen on; 0 selects a free port.")] = 8001,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            envvar="MAVSTREAM_ALLOW_HOST",
            help="A name of this page besides loopback names and --host; '*.DOMAIN' or '*'.",
        ),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain (PEM), to speak HTTPS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key of the certificate (PEM).")] = None,
    child: Annotated[bool, typer.Option("--child", hidden=True)] = False,
) -> None:
    """Serve the browser page of a server, in a process of its own; `mavstream serve` starts one by itself.

    It asks for a token if the server needs one, and shows what that token may do.
    """
    try:
        from mavstream_page.serve import Listening, run
    except ModuleNotFoundError as error:
        typer.echo(f"mavstream page: {error}: install it with pip install 'mavstream[page]'", err=True)
        raise typer.Exit(2) from None
    if (tls_cert is None) != (tls_key is None):
        raise typer.BadParameter("TLS needs a certificate and its key: give both --tls-cert and --tls-key")
    options = Listening(url, host, port, tuple(allow_host or ()), tls_cert, tls_key)
    try:
        run(options, child=child)
    except OSError as error:
        typer.echo(f"mavstream page: cannot listen on {host} port {port}: {error.strerror}", err=True)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    app()
