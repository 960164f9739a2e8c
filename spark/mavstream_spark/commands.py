"""The command `mavstream data`, which also runs under spark-submit."""

from __future__ import annotations

import json as json_text
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mavstream import Client
from mavstream.cli.output import complain, show_fields, show_json, show_table, warn
from mavstream_feeder.input.inference import infer_stream
from mavstream_protocol import MavstreamError, StreamSpec
from mavstream_protocol.instants import format_instant
from mavstream_protocol.manifest import Manifest
from mavstream_spark.errors import InvalidJob, UnreadableInput
from mavstream_spark.progress import progress_for
from mavstream_spark.session import spark_session

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Make, convert and check datasets with Spark.",
)

OutOption = Annotated[
    str, typer.Option("--out", help="Folder of the new dataset, on any storage that Spark reaches.")
]
MasterOption = Annotated[
    str | None,
    typer.Option("--master", help="Where Spark runs (all cores of this machine, or what spark-submit says)."),
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace an existing dataset.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the manifest as JSON, and no progress.")]


class Workload(StrEnum):
    """Workloads that can be generated."""

    HOMES = "homes"
    PLAIN = "plain"


class RawFormat(StrEnum):
    """Formats of raw logs."""

    CASAS = "casas"
    CSV = "csv"


@app.command("generate")
def generate(
    out: OutOption,
    workload: Annotated[
        Workload, typer.Option(help="Smart homes, or the plain readings of the papers.")
    ] = Workload.HOMES,
    homes: Annotated[int, typer.Option(min=1, help="Number of homes.")] = 100,
    days: Annotated[int, typer.Option(min=1, help="Number of days.")] = 7,
    anomalies: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of home-days on which something goes wrong.")
    ] = 0.02,
    streams: Annotated[int, typer.Option(min=1, help="Plain workload: number of streams.")] = 2,
    rate: Annotated[
        str, typer.Option(help="Plain workload: rows a second of each stream, 40@150s,80@50s.")
    ] = "500@60s",
    start: Annotated[str, typer.Option(help="The first day.")] = "2026-03-01",
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same rows.")] = 0,
    master: MasterOption = None,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Generate a dataset: homes with people and sensors, or plain readings."""
    from mavstream_spark.generate.homes import HomesOptions, generate_homes
    from mavstream_spark.generate.plain import PlainOptions, generate_plain

    with spark_session(master) as spark:
        progress = progress_for(spark, quiet=json)
        if workload is Workload.HOMES:
            options = HomesOptions(homes, days, start, seed, anomalies)
            made = generate_homes(spark, out, options, overwrite=overwrite, progress=progress)
        else:
            plain = PlainOptions(streams, rate, start, seed)
            made = generate_plain(spark, out, plain, overwrite=overwrite, progress=progress)
    _show_made(made, out, json)


@app.command("convert")
def convert_files(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Raw logs; * is a wildcard.")],
    out: OutOption,
    format_: Annotated[
        RawFormat | None,
        typer.Option("--format", help="Format of the files (by the ending of the first one)."),
    ] = None,
    stream: Annotated[str | None, typer.Option(help="CSV: name of the stream (that of the file).")] = None,
    time: Annotated[str | None, typer.Option(help="CSV: the event time column.")] = None,
    fields: Annotated[
        str | None, typer.Option(help="CSV: columns and types, 'at timestamp, room string, x float null'.")
    ] = None,
    master: MasterOption = None,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Convert raw logs, CASAS text or CSV, to a dataset; bad lines are kept with the reason."""
    from mavstream_spark.convert.casas import CasasReader
    from mavstream_spark.convert.conversion import convert
    from mavstream_spark.convert.csv_lines import CsvReader, parse_fields

    if format_ is None:
        format_ = RawFormat.CSV if files[0].lower().endswith(".csv") else RawFormat.CASAS
    reader: CasasReader | CsvReader = CasasReader()
    if format_ is RawFormat.CSV:
        path = Path(files[0])
        name = stream or path.stem
        try:
            with path.open() as file:
                header = file.readline().rstrip("\r\n")
        except OSError as error:
            raise UnreadableInput(f"file '{path}' cannot be read: {error.strerror}") from None
        spec: StreamSpec = parse_fields(name, fields, time) if fields else infer_stream(name, path, time)
        reader = CsvReader(spec, header)
    with spark_session(master) as spark:
        progress = progress_for(spark, quiet=json)
        made = convert(spark, files, out, reader, overwrite=overwrite, progress=progress)
    _show_made(made, out, json)


@app.command("expected")
def expected(
    context: typer.Context,
    data: Annotated[str, typer.Argument(metavar="DATASET", help="The folder of a dataset.")],
    out: OutOption,
    plan: Annotated[
        list[Path] | None, typer.Option("--plan", help="A plan as JSON or YAML; may be repeated.")
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="The 21 queries of the demo.")] = False,
    query: Annotated[
        list[str] | None,
        typer.Option(
            "--query", metavar="ID", help="A query registered on the server of --url; may be repeated."
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE[@INSTANT]",
            help="A table that plans join; several versions each from an instant on.",
        ),
    ] = None,
    url: Annotated[str | None, typer.Option("--url", envvar="MAVSTREAM_URL", help="The server.")] = None,
    token: Annotated[str | None, typer.Option("--token", envvar="MAVSTREAM_TOKEN", help="Its token.")] = None,
    master: MasterOption = None,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Compute the answers that queries must give over a dataset."""
    from mavstream_spark.expected.answers import write_expected
    from mavstream_spark.expected.queries import by_name, plans_in_files, plans_of_the_demo, plans_on_server
    from mavstream_spark.plans.table_data import read_tables

    named = plans_in_files(plan or [])
    if demo:
        named += plans_of_the_demo()
    if query:
        named += plans_on_server(*_server(context, url, token), query)
    if not named:
        raise InvalidJob("no queries given: use --plan FILE, --query ID or --demo")
    plans = by_name(named)
    tables = read_tables(table or [])
    with spark_session(master) as spark:
        progress = progress_for(spark, quiet=json)
        made = write_expected(spark, data, out, plans, tables=tables, overwrite=overwrite, progress=progress)
    _show_made(made, out, json)


@app.command("check")
def check_results(
    context: typer.Context,
    data: Annotated[
        Path, typer.Argument(metavar="ANSWERS", help="The folder that `mavstream data expected` wrote.")
    ],
    query: Annotated[
        list[str] | None,
        typer.Option(
            "--query",
            metavar="NAME[=QUERY]",
            help="Expected answers, and the query whose results they are (of the same name or id); "
            "may be repeated. By default all.",
        ),
    ] = None,
    rows: Annotated[
        int, typer.Option(min=0, help="Show at most this many rows that differ, per query.")
    ] = 10,
    url: Annotated[str | None, typer.Option("--url", envvar="MAVSTREAM_URL", help="The server.")] = None,
    token: Annotated[str | None, typer.Option("--token", envvar="MAVSTREAM_TOKEN", help="Its token.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Compare the results of a server's queries with expected answers; exit code 1 if they differ."""
    from mavstream_spark.expected.checking import check, pairs_of, unfinished
    from mavstream_spark.expected.differences import as_json, lines_of, summary

    address, secret = _server(context, url, token)
    with Client(address, token=secret) as client:
        pairs = pairs_of(data, client, query or [])
        for info in unfinished(client, list(pairs.values())):
            warn(
                f"query '{info.spec.name}' is {info.state}, so results may follow: complete its streams "
                "with 'mavstream stream complete', and wait until it has finished"
            )
        found = check(data, client, pairs)
    if json:
        show_json([as_json(one, rows) for one in found])
    else:
        show_table(("answers", "expected", "found", "missing", "unexpected"), map(summary, found))
        for one in found:
            for line in lines_of(one, rows):
                typer.echo(line)
    if not all(one.same for one in found):
        raise typer.Exit(1)


@app.command("inspect")
def inspect(
    data: Annotated[Path, typer.Argument(metavar="DATASET", help="The folder of a dataset.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Count and hash all rows with Spark and compare.")
    ] = False,
    picture: Annotated[
        Path | None, typer.Option(help="Draw a home-day into this file (needs mavstream[pictures]).")
    ] = None,
    home: Annotated[int, typer.Option(min=1, help="The home to draw.")] = 1,
    day: Annotated[str | None, typer.Option(help="The day to draw (the first).")] = None,
    master: MasterOption = None,
    json: JsonOption = False,
) -> None:
    """Show the streams of a dataset, verify its rows, draw a home-day."""
    manifest = Manifest.load(data)
    _show(manifest, json)
    if verify:
        from mavstream_spark.datasets.reader import Dataset

        with spark_session(master) as spark:
            dataset = Dataset(spark, str(data))
            names = [*manifest.streams, *([] if manifest.truth is None else ["truth"])]
            for name in names:
                dataset.verify(name)
        typer.echo(f"{len(names)} checksums verified", err=True)
    if picture is not None:
        from mavstream_spark.datasets.pictures import draw_day

        draw_day(manifest, data, home, day, picture)
        typer.echo(f"drew home {home} into {picture}", err=True)


@app.command("script")
def script() -> None:
    """Print the path of the program for spark-submit."""
    typer.echo(Path(__file__).with_name("__main__.py"))


def _server(context: typer.Context, url: str | None, token: str | None) -> tuple[str, str | None]:
    """Return the address of a server and the token for it, also from options of the parent command."""
    shared = context.obj
    address = url or getattr(shared, "url", None) or "http://127.0.0.1:8000"
    return address, token or (None if shared is None else shared.secret())


def _show_made(manifest: Manifest, out: str, json: bool) -> None:
    _show(manifest, json)
    if not json:
        typer.echo(f"the dataset is in {out}")


def _show(manifest: Manifest, json: bool) -> None:
    if json:
        show_json(json_text.loads(manifest.text()))
        return
    rows = []
    entries = {**manifest.streams, **({} if manifest.truth is None else {"(truth)": manifest.truth})}
    for name, data in entries.items():
        first, last = data.time_range or (None, None)
        times = [None if each is None else format_instant(each)[:19] for each in (first, last)]
        rows.append((name, f"{data.rows:,}", *times, data.rate, len(data.files), data.checksum))
    show_table(("stream", "rows", "first", "last", "rows/s", "files", "checksum"), rows)
    if manifest.bad_lines is not None:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in manifest.bad_lines.reasons.items())
        show_fields([("bad lines", f"{manifest.bad_lines.rows:,}" + (f": {kinds}" if kinds else ""))])


def run() -> None:
    """Run as a program, as under spark-submit."""
    try:
        app()
    except MavstreamError as error:
        complain(str(error))
        sys.exit(1)


if __name__ == "__main__":
    run()
