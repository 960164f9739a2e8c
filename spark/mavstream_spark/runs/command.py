"""The command `mavstream spark-runner`: runs queries with backend `spark`, until it is stopped."""

from __future__ import annotations

import logging
import os
import signal
import socket
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from mavstream.cli.output import complain
from mavstream_protocol import MavstreamError
from mavstream_spark.session import spark_session
from mavstream_spark.source.options import read_options

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_TIMEOUT = 60.0


@app.command("spark-runner")
def run(
    url: Annotated[str, typer.Option(envvar="MAVSTREAM_URL", help="Address of the server.")],
    token: Annotated[
        str | None, typer.Option(envvar="MAVSTREAM_TOKEN", help="A token of role runner.")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(help="Where Spark runs (all local cores, or what spark-submit says)."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the runner in reports; by default that of the machine.")
    ] = None,
    interval: Annotated[
        float, typer.Option(min=0.05, max=5.0, help="Seconds between two micro-batches of a query.")
    ] = 1.0,
    max_rows: Annotated[
        int, typer.Option(min=1, help="Most new rows of a micro-batch, of queries without windows and joins.")
    ] = 200_000,
    partitions: Annotated[int, typer.Option(min=1, help="Most tasks that read a stream.")] = 4,
    conf: Annotated[list[str] | None, typer.Option(help="A setting of Spark: KEY=VALUE.")] = None,
) -> None:
    """Run the queries of a server that have backend `spark` on a Spark cluster."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        server = read_options(
            {"url": url, "stream": "none", "timeout": str(_TIMEOUT), **({"token": token} if token else {})}
        ).server
        with tempfile.TemporaryDirectory(prefix="mavstream-runner-") as folder:
            from mavstream_spark import register
            from mavstream_spark.runs.pools import fair_settings
            from mavstream_spark.runs.query_run import RunOptions
            from mavstream_spark.runs.runner import Runner

            given = dict(_setting(text) for text in conf or ())
            with spark_session(master, {**fair_settings(Path(folder)), **given}) as spark:
                register(spark)
                options = RunOptions(name or _own_name(), max_rows, partitions)
                runner = Runner(spark, server, options, interval)
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, lambda *_: runner.stop())
                logging.getLogger("mavstream.spark").info("runner '%s' is ready", options.runner)
                runner.run()
    except MavstreamError as error:
        complain(str(error))
        raise typer.Exit(1) from None


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"expected KEY=VALUE, got '{text}'", param_hint="--conf")
    return key, value


def _own_name() -> str:
    host = "".join(letter if letter.isalnum() else "_" for letter in socket.gethostname())
    return f"r_{host}_{os.getpid()}"[:64]
