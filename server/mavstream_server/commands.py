"""The `mavstream serve` command: runs a server."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from mavstream_protocol.errors import MavstreamError

app = typer.Typer(no_args_is_help=False)

_LIMITS = "Limits"


def _limit(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel=_LIMITS)


class _Serve(TyperCommand):
    """The command; its help shows the defaults of the settings, which are loaded only for that."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        from mavstream_server.core.defaults import default_text

        for option in self.params:
            text = default_text(option.name or "")
            if text is not None:
                option.default = text
        super().format_help(ctx, formatter)


@app.command(cls=_Serve)
def serve(
    data: Annotated[
        Path | None, typer.Option(help="Data directory for streams, tables, results and the catalog.")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; all but loopback addresses require tokens.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="TCP port to listen on; 0 selects a free port.")] = None,
    page: Annotated[
        bool | None,
        typer.Option("--page/--no-page", help="Whether to serve the browser page, in a process of its own."),
    ] = None,
    page_port: Annotated[
        int | None, typer.Option(help="TCP port of the browser page; by default the one after --port.")
    ] = None,
    page_url: Annotated[
        str | None,
        typer.Option(
            help="Where browsers find the page, such as https://streams.example.org, behind a proxy."
        ),
    ] = None,
    tokens_file: Annotated[
        Path | None, typer.Option(help="File with one ROLE:TOKEN per line (or use MAVSTREAM_TOKENS).")
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate chain (PEM), to speak HTTPS; read again on SIGHUP.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key of the certificate (PEM).")] = None,
    audit_log: Annotated[
        str | None, typer.Option(help="File of the audit log, audit.jsonl in the data directory; or 'off'.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A name of this server besides loopback names and --host; '*.DOMAIN' or '*'."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="Origin of web pages that may use this server, such as https://app.example.org."),
    ] = None,
    query_token: Annotated[
        bool | None,
        typer.Option("--query-token", help="Accept tokens of websockets as ?token=, which proxies may log."),
    ] = None,
    delivery: Annotated[
        str | None,
        typer.Option(
            help="Acknowledged rows survive the death of any 'process', or also power loss: 'sync'."
        ),
    ] = None,
    policy: Annotated[str | None, typer.Option(help="Initial scheduling policy of a new server.")] = None,
    policy_options: Annotated[
        str | None, typer.Option(help="Options of the initial scheduling policy, as a JSON object.")
    ] = None,
    sources: Annotated[
        str | None, typer.Option(help="How sources are scheduled: between_slices, per_class, ...")
    ] = None,
    admission: Annotated[
        str | None,
        typer.Option(help="How to treat new queries that endanger QoS targets: 'warn', 'refuse' or 'off'."),
    ] = None,
    sharing: Annotated[
        str | None,
        typer.Option(help="Which queries share equal prefixes: of the same 'class', 'all', or none: 'off'."),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(help="Log format on stderr: 'json' or 'text'; by default text on a terminal."),
    ] = None,
    max_body_bytes: Annotated[str | None, _limit("Maximum size of a request body, such as 16MiB.")] = None,
    max_frame_bytes: Annotated[
        str | None, _limit("Maximum size of a producer's message, such as 16MiB.")
    ] = None,
    max_queries: Annotated[int | None, _limit("Maximum number of registered queries.")] = None,
    max_streams: Annotated[int | None, _limit("Maximum number of registered streams.")] = None,
    max_tables: Annotated[int | None, _limit("Maximum number of stored tables.")] = None,
    max_table_bytes: Annotated[str | None, _limit("Maximum size of a table version, such as 64MiB.")] = None,
    max_table_versions: Annotated[int | None, _limit("Maximum number of versions per table in use.")] = None,
    max_producers: Annotated[int | None, _limit("Maximum number of producer names.")] = None,
    producer_expiry: Annotated[
        str | None, _limit("Time after which an unused producer is removed, such as 30d.")
    ] = None,
    max_stage_bytes: Annotated[
        str | None, _limit("Maximum disk space of rows that are staged, such as 1GiB.")
    ] = None,
    max_batch_bytes: Annotated[
        str | None, _limit("Maximum size of a batch that is published at once, such as 64MiB.")
    ] = None,
    stage_expiry: Annotated[
        str | None, _limit("Time after which a stage that was not published is removed, such as 1h.")
    ] = None,
    max_subscribers: Annotated[int | None, _limit("Maximum number of open subscriptions.")] = None,
    max_connections: Annotated[int | None, _limit("Maximum number of open requests and websockets.")] = None,
    reserved_connections: Annotated[
        int | None, _limit("Connections beyond these for administrators and health checks.")
    ] = None,
    max_wrong_tokens: Annotated[
        int | None, _limit("Wrong tokens per address and minute; then the address has to wait.")
    ] = None,
    max_pending_feeds: Annotated[
        int | None, _limit("Maximum number of producers' websockets without a hello.")
    ] = None,
    max_header_bytes: Annotated[
        str | None, _limit("Maximum size of a request's headers, such as 128KiB.")
    ] = None,
    max_url_bytes: Annotated[str | None, _limit("Maximum length of a URL, up to 65535.")] = None,
    header_timeout: Annotated[str | None, _limit("Time for the headers of a request, such as 10s.")] = None,
    body_timeout: Annotated[str | None, _limit("Time for a body to begin and to go on, such as 30s.")] = None,
    send_timeout: Annotated[
        str | None, _limit("Time after which a client that does not read is disconnected.")
    ] = None,
    hello_timeout: Annotated[str | None, _limit("Time for the hello of a producer, such as 10s.")] = None,
    max_disk_bytes: Annotated[
        str | None, _limit("Maximum disk space of all stream logs together, such as 10GiB.")
    ] = None,
    max_clock_step: Annotated[
        str | None, _limit("How far arrival times follow a jump of the clock ahead at once, such as 1m.")
    ] = None,
    credit_bytes: Annotated[str | None, _limit("Maximum bytes in flight per producer and stream.")] = None,
    engine_timeout: Annotated[
        str | None, _limit("Time after which a hanging engine is restarted, such as 30s.")
    ] = None,
    query_memory: Annotated[
        str | None,
        _limit("Memory of a query beyond which it fails, such as 1GiB; a quarter of the machine's."),
    ] = None,
    engine_memory: Annotated[
        str | None,
        _limit("Memory of the engine beyond which its largest query fails; six tenths of the machine's."),
    ] = None,
    checkpoint_interval: Annotated[
        str | None, _limit("Time between two checkpoints of a query; off for none.")
    ] = None,
    result_bytes: Annotated[str | None, _limit("Result rows retained per query, such as 16MiB.")] = None,
    result_time: Annotated[str | None, _limit("How long result rows are retained, such as 1h.")] = None,
) -> None:
    """Run a server. Every flag has an environment variable: --max-queries is MAVSTREAM_MAX_QUERIES."""
    flags = {name: value for name, value in locals().items() if name != "log"}
    try:
        # Imported here: loading the server takes a second, which `--help` should not wait for.
        from mavstream_server.core.settings import Settings
        from mavstream_server.core.storage import failpoints
        from mavstream_server.supervisor.engine_child import EngineChild

        if log not in (None, "json", "text"):
            raise typer.BadParameter(f"--log: expected json or text, got {log!r}")
        as_text = sys.stderr.isatty() if log is None else log == "text"
        settings = Settings.from_environment(os.environ, **flags)
        failpoints.arm_from_environment("api")
        # Loading makes many objects and no garbage.
        gc.disable()
        # The engine loads while the server does.
        child = EngineChild.start()
        from mavstream_server.api.serve import run

        run(settings, "text" if as_text else "json", child)
    except (MavstreamError, typer.BadParameter) as error:
        typer.echo(f"mavstream serve: {error}", err=True)
        raise typer.Exit(2) from None
    except ModuleNotFoundError as error:
        typer.echo(
            f"mavstream serve: {error}: install the server with pip install 'mavstream[server]'", err=True
        )
        raise typer.Exit(2) from None


if __name__ == "__main__":
    app()
