"""The commands `mavstream feed` and `mavstream demo`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import orjson
import typer

from mavstream import Client
from mavstream.cli.reading import (
    BadRowsOption,
    DecimalOption,
    DelimiterOption,
    RenameOption,
    TimeFormatOption,
    reading_of,
)
from mavstream_feeder.errors import InvalidRate, InvalidSplit, UnreadableFile
from mavstream_feeder.input.arguments import InputArguments, parse_skips, read_feeds
from mavstream_feeder.live import LiveFeed, PipeFormat, run_live
from mavstream_feeder.pacing.rates import parse_speed
from mavstream_feeder.reports import Report
from mavstream_feeder.sending.feeds import FRAME_ROWS, Options
from mavstream_feeder.sending.link import Address
from mavstream_feeder.session import Session, run_feed
from mavstream_protocol import parse_duration
from mavstream_protocol.row_files.reading import Reading
from mavstream_protocol.wire.feed import Format

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

_HERE = "http://127.0.0.1:8000"

UrlOption = Annotated[
    str | None,
    typer.Option("--url", envvar="MAVSTREAM_URL", help=f"Address of the server; {_HERE} by default."),
]
TokenOption = Annotated[
    str | None, typer.Option("--token", envvar="MAVSTREAM_TOKEN", help="Token for the server.")
]
RateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rate",
        metavar="[STREAM=]RATE",
        help="Rows per second, for all streams or one: 500, readings=500, 40@150s,80@50s, max, recorded, "
        "recorded:COLUMN.",
    ),
]
SeedOption = Annotated[int, typer.Option(min=0, help="The same seed gives the same arrival times.")]


@app.command("feed")
def feed(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[STREAM=]FILE...",
            help="CSV, JSON lines or Parquet files, one per stream; STREAM=- is standard input.",
        ),
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Feed the sample smart-home streams.")] = False,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Feed the streams of a dataset, a folder with manifest.json."),
    ] = None,
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", help="With --data: feed only these streams of the dataset."),
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(
            "--split",
            metavar="'STREAM=FILE where CONDITION'",
            help="Feed a stream with the rows of a file that meet a condition; a row goes to the first "
            "stream that takes it. Without 'where': all rows that are left.",
        ),
    ] = None,
    rate: RateOption = None,
    speed: Annotated[
        str, typer.Option("--speed", help="Speed of all rates and recordings: 10x, 0.5x.")
    ] = "1x",
    create: Annotated[bool, typer.Option("--create", help="Create missing streams.")] = False,
    event_time: Annotated[
        str | None, typer.Option(help="With --create: the field with the event time of rows.")
    ] = None,
    retention: Annotated[
        str | None,
        typer.Option(help="Of streams that are created: how long rows are kept that all queries have read."),
    ] = None,
    idle_timeout: Annotated[
        str | None,
        typer.Option(
            help="Of streams that are created: a producer that is silent for this long holds nothing back."
        ),
    ] = None,
    stamp: Annotated[
        str, typer.Option(help="Event times: 'file' keeps those of the file, 'now' uses the due times.")
    ] = "file",
    loop: Annotated[bool, typer.Option("--loop", help="Start files over at their end.")] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Feed at most this many rows of each file.")
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option("--skip", metavar="[STREAM=]ROWS", help="Skip the first rows, of all files or one."),
    ] = None,
    skip_rejected: Annotated[
        bool,
        typer.Option("--skip-rejected", help="Skip and count rows that the server refuses."),
    ] = False,
    seconds: Annotated[float | None, typer.Option(min=0.0, help="Stop after this many seconds.")] = None,
    seed: SeedOption = 0,
    producer: Annotated[
        str | None,
        typer.Option(
            help="Producer name, by which the server recognises what it has; a random one by default."
        ),
    ] = None,
    format_: Annotated[
        PipeFormat | None,
        typer.Option("--format", help="Format of a pipe: JSON lines (the default) or CSV."),
    ] = None,
    delimiter: DelimiterOption = ",",
    decimal: DecimalOption = ".",
    time_format: TimeFormatOption = None,
    rename: RenameOption = None,
    bad_rows: BadRowsOption = "skip",
    complete: Annotated[
        bool,
        typer.Option("--complete", help="At the end mark the streams as complete: queries over them finish."),
    ] = False,
    wire: Annotated[Format, typer.Option("--wire", help="Encoding of rows on the wire.")] = Format.ARROW,
    frame_rows: Annotated[
        int, typer.Option(min=1, help="Send at most this many rows in a frame.")
    ] = FRAME_ROWS,
    linger: Annotated[
        str, typer.Option(help="How long rows may wait to share a message with others.")
    ] = "850us",
    output: Annotated[str, typer.Option("--output", "-o", help="'table' or 'json'.")] = "table",
    url: UrlOption = None,
    token: TokenOption = None,
) -> None:
    """Feed streams from files, with Poisson arrivals or as recorded."""
    _one_of("--stamp", stamp, ("file", "now"))
    _one_of("--output", output, ("table", "json"))
    reading = reading_of(delimiter, decimal, time_format, rename, bad_rows)
    say = _say if output == "table" else _silent
    if pipes := [text for text in files or () if text == "-" or text.endswith("=-")]:
        others = sample or data or split or stream or rate or loop or skip or stamp != "file"
        name = _pipe(pipes[0], alone=len(files or ()) == 1 and not others)
        live = LiveFeed(
            name,
            format_ or PipeFormat.NDJSON,
            reading,
            producer,
            create,
            event_time,
            limit,
            seconds,
            skip_rejected,
            complete,
        )
        address = _address(context, url, token)
        with Client(address.url, token=address.token) as client:
            _show(run_live(client, live, say), reading, output)
        return
    if format_ is not None:
        raise typer.BadParameter("--format is for pipes, STREAM=-: files have it in their names")
    try:
        options = Options(
            producer,
            wire,
            seed,
            parse_duration(linger) / 1e6,
            frame_rows,
            skip_rejected=skip_rejected,
        )
        given = InputArguments(files or (), split or (), sample, data, stream or ())
        feeds = read_feeds(given, rate or (), parse_speed(speed))
        session = Session(
            address=_address(context, url, token),
            options=options,
            feeds=feeds,
            create=create or sample,
            event_time=event_time,
            settings=_settings(retention=retention, idle_timeout=idle_timeout),
            stamp=stamp == "now",
            loop=loop,
            limit=limit,
            skips=parse_skips(skip or (), [each.name for each in feeds]),
            seconds=seconds,
            reading=reading,
            complete=complete,
            say=say,
        )
        ending = asyncio.run(run_feed(session, show=output == "table"))
    except (InvalidRate, InvalidSplit, UnreadableFile, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    _show(ending.report, reading, output)
    if ending.interrupted:
        raise typer.Exit(130)
    if ending.error is not None:
        raise ending.error


def _pipe(text: str, *, alone: bool) -> str:
    """Return the stream that a pipe is fed into; raises BadParameter."""
    stream = text.removesuffix("-").removesuffix("=")
    if not stream:
        raise typer.BadParameter("say which stream gets the rows of standard input: STREAM=-")
    if not alone:
        raise typer.BadParameter(
            f"'{text}' is fed as it comes, by itself: leave out other files, --rate, --loop and so on"
        )
    return stream


def _show(report: Report, reading: Reading, output: str) -> None:
    from mavstream_feeder.display import print_report

    if output == "json":
        _print_json(report.as_json())
    else:
        print_report(report)
    bad = reading.bad_rows
    if bad.count:
        _say(f"{bad.count:,} rows could not be read and were left out, first:")
        for row in bad.shown:
            _say(f"  {row}")


def _settings(**durations: str | None) -> dict[str, str]:
    """Return the given settings of streams; raises ValueError."""
    given = {name: text for name, text in durations.items() if text is not None}
    for text in given.values():
        parse_duration(text)
    return given


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _silent(_: str) -> None:
    return


@app.command("demo")
def demo(
    context: typer.Context,
    seconds: Annotated[
        float, typer.Option(min=1.0, help="Seconds to feed; the story takes 60, or all of 20 to 60.")
    ] = 60.0,
    rate: Annotated[
        list[str] | None,
        typer.Option(
            "--rate",
            metavar="[STREAM=]RATE",
            help="Feed the sample streams with Poisson arrivals, so many rows per second, and tell no story.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Homes of your own, a dataset of 'mavstream data generate'."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print only one JSON object, at the end.")] = False,
    policy: Annotated[str | None, typer.Option(help="Scheduling policy, such as rr or wrr.")] = None,
    no_feed: Annotated[
        bool,
        typer.Option(
            "--no-feed", help="Only submit queries and watch: another feeder feeds the server of --url."
        ),
    ] = False,
    seed: SeedOption = 0,
    url: Annotated[str | None, typer.Option("--url", help="Use this server instead of starting one.")] = None,
    token: TokenOption = None,
) -> None:
    """Run a demo of a minute: 21 queries watch smart homes, are overloaded, and find a fire."""
    from mavstream_feeder.demo.homes import HOMES
    from mavstream_feeder.demo.run import DemoOptions, run_demo

    address = None if url is None else _address(context, url, token)
    if no_feed and address is None:
        raise typer.BadParameter("--no-feed needs a running server: give --url")
    if data is not None and rate:
        raise typer.BadParameter("--rate feeds the sample, not the homes of --data: give one of them")
    try:
        options = DemoOptions(
            seconds, tuple(rate or ()), data or HOMES, seed, policy, feed=not no_feed, live=not json
        )
        outcome = run_demo(options, address)
    except (InvalidRate, UnreadableFile) as error:
        raise typer.BadParameter(str(error)) from None
    if json:
        _print_json(outcome.as_json())
    for failure in outcome.failures:
        typer.echo(f"demo: {failure}", err=True)
    if outcome.failures:
        raise typer.Exit(1)


def _address(context: typer.Context, url: str | None, token: str | None) -> Address:
    """Return the server's address from this command's options, else from those of the parent command."""
    shared = context.obj
    return Address(
        url or getattr(shared, "url", None) or _HERE,
        token if token is not None or shared is None else shared.secret(),
    )


def _one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise typer.BadParameter(f"expected one of {', '.join(known)}, got '{value}'", param_hint=option)


def _print_json(value: object) -> None:
    sys.stdout.write(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE).decode())


if __name__ == "__main__":
    app()
