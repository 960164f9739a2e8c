"""`mavstream query`: continuous queries and their results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from mavstream.cli.output import complain, show_fields, show_json, show_list, show_table, warn
from mavstream.cli.readable import clock, size
from mavstream.cli.session import FileArgument, Output, OutputOption, QueryArgument, client_of
from mavstream.cli.watching import watch_rows
from mavstream_protocol import ReadFrom
from mavstream_protocol.admission import AdmissionEstimate, Outlook, TargetOutlook
from mavstream_protocol.instants import format_instant
from mavstream_protocol.wire.delivery import CheckpointInfo, QueryDelivery
from mavstream_protocol.wire.resources import QueryInfo, Validation

app = typer.Typer(no_args_is_help=True, help="Manage continuous queries and read their results.")

NameOption = Annotated[
    str | None, typer.Option(help="Name of the query; by default that in the file, or the file's.")
]
ClassOption = Annotated[str | None, typer.Option("--class", help="Class of the query.")]
FromOption = Annotated[ReadFrom | None, typer.Option("--from", help="Where in its streams the query begins.")]


@app.command("submit")
def submit(
    context: typer.Context,
    file: FileArgument,
    name: NameOption = None,
    class_: ClassOption = None,
    from_: FromOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Register a query from a file with its specification, or with a plan alone."""
    with client_of(context) as client:
        query = client.submit(file, name=name, class_=class_, from_=from_)
        _show(query.info().model_copy(update={"admission": query.admission}), output)
    _warn_of(query.admission)


@app.command("replace")
def replace(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the query.")],
    file: FileArgument,
    class_: ClassOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change a running query to the specification in a file, or register it; its offsets go on."""
    with client_of(context) as client:
        query = client.replace(name, file, class_=class_)
        _show(query.info().model_copy(update={"admission": query.admission}), output)
    _warn_of(query.admission)


@app.command("validate")
def validate(context: typer.Context, file: FileArgument, output: OutputOption = Output.TABLE) -> None:
    """Validate a query without registering it; exit code 1 if it is invalid."""
    with client_of(context) as client:
        found = client.validate(file)
    if output is Output.JSON:
        show_json(found)
    else:
        _show_validation(found)
    raise typer.Exit(0 if found.valid else 1)


@app.command("list")
def list_queries(
    context: typer.Context,
    state: Annotated[str | None, typer.Option(help="Only queries in this state.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the queries."""
    with client_of(context) as client:
        found = client.queries(state)
    show_list(
        found,
        output,
        ["query", "class", "state", "results", "p95 ms", "delivery", "checkpoint"],
        lambda one: (
            one.spec.name or one.id,
            one.spec.class_,
            one.state,
            one.results,
            one.latency_ms and one.latency_ms.p95,
            one.delivery.guarantee,
            _age(one.checkpoint),
        ),
    )


@app.command("show")
def show(context: typer.Context, query: QueryArgument, output: OutputOption = Output.TABLE) -> None:
    """Show the state and metrics of a query."""
    with client_of(context) as client:
        _show(client.query(query).info(), output)


@app.command("qos")
def qos(context: typer.Context, query: QueryArgument, output: OutputOption = Output.TABLE) -> None:
    """Show a query's QoS targets, measured values, and the actions taken for it."""
    with client_of(context) as client:
        report = client.query(query).qos()
    if output is Output.JSON:
        show_json(report)
        return
    show_fields(
        [
            ("query", report.query),
            ("latency ms", report.latency_ms and report.latency_ms.model_dump(exclude_none=True)),
            ("memory", _sizes(report.memory_bytes)),
            ("rows per second", report.rows_per_s),
            ("rows shed", report.shed.rows),
            ("share shed now", report.shed.share),
        ]
    )
    targets = [
        (one.objective, one.statistic, one.target, one.weight, one.measured, one.state, clock(one.since))
        for one in report.targets
    ]
    show_table(["objective", "statistic", "target", "weight", "measured", "state", "since"], targets)
    actions = [(clock(one.at), one.what, one.outcome) for one in report.actions]
    show_table(["at", "action", "outcome"], actions)


@app.command("plan")
def plan(context: typer.Context, query: QueryArgument, output: OutputOption = Output.TABLE) -> None:
    """Show a query's operators with their states, and the paths and segments that they form."""
    with client_of(context) as client:
        found = client.query(query).plan()
    if output is Output.JSON:
        show_json(found)
        return
    show_table(
        ["operator", "kind", "state", "queued", "us/row", "out/in", "bytes", "rows/s"],
        [
            (
                one.name,
                one.operator,
                one.state,
                one.queued,
                one.cost_per_tuple_us,
                one.selectivity,
                one.tuple_bytes,
                one.processing_capacity,
            )
            for one in found.operators
        ],
    )
    units = (
        ("path", found.operator_paths),
        ("segment", found.segments),
        ("simplified segment", found.simplified_segments),
    )
    show_table(
        ["unit", "operators", "rows/s", "freed/s"],
        [
            (kind, " > ".join(one.operators), one.processing_capacity, size(one.memory_release_capacity))
            for kind, some in units
            for one in some
        ],
    )
    if found.chain:
        show_table(
            ["query below", "class", "state", "reads", "results", "read up to"],
            [
                (one.name, one.class_, one.state, ", ".join(one.reads), one.results, one.read)
                for one in found.chain
            ],
        )


@app.command("pause")
def pause(context: typer.Context, query: QueryArgument, output: OutputOption = Output.TABLE) -> None:
    """Pause a query: it reads no rows until it is resumed."""
    with client_of(context) as client:
        _show(client.query(query).pause(), output)


@app.command("resume")
def resume(
    context: typer.Context,
    query: QueryArgument,
    skip_to: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[STREAM=]POSITION",
            help="Let a failed query go on at this position of a stream, with empty state; "
            "once for each stream, others go on at their end.",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Resume a paused query, or one that has failed behind the rows that it failed at."""
    with client_of(context) as client:
        resumed = client.query(query)
        positions = _read_positions(skip_to, sorted(resumed.info().spec.plan.streams)) if skip_to else None
        _show(resumed.resume(positions), output)


def _read_positions(texts: list[str], streams: Sequence[str]) -> dict[str, int]:
    """Return positions by stream; the stream may be omitted if the query reads only one."""
    positions: dict[str, int] = {}
    for text in texts:
        stream, _, number = text.rpartition("=")
        if not stream and len(streams) == 1:
            (stream,) = streams
        if not stream or not number.isdecimal():
            raise typer.BadParameter(
                f"'{text}' is not STREAM=POSITION; the query reads {', '.join(streams)}",
                param_hint="--skip-to",
            )
        positions[stream] = int(number)
    return positions


@app.command("stop")
def stop(context: typer.Context, query: QueryArgument, output: OutputOption = Output.TABLE) -> None:
    """Stop a query; its results are kept."""
    with client_of(context) as client:
        _show(client.query(query).stop(), output)


@app.command("set")
def set_values(
    context: typer.Context,
    query: QueryArgument,
    start_at: Annotated[
        str | None, typer.Option(help="When it starts, while it is scheduled (ISO 8601); 'now' starts it.")
    ] = None,
    stop_at: Annotated[
        str | None, typer.Option(help="When it ends (ISO 8601); 'never' lets it run on.")
    ] = None,
    qos: Annotated[str | None, typer.Option(help="Its targets as JSON, all of them; '{}' for none.")] = None,
    class_: ClassOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change when a query starts and stops, its targets or its class."""
    changes: dict[str, Any] = {}
    if start_at is not None:
        changes["start_at"] = None if start_at == "now" else start_at
    if stop_at is not None:
        changes["stop_at"] = None if stop_at == "never" else stop_at
    if qos is not None:
        changes["qos"] = _read_targets(qos)
    if class_ is not None:
        changes["class_"] = class_
    if not changes:
        raise typer.BadParameter("nothing is to be changed: give --start-at, --stop-at, --qos or --class")
    with client_of(context) as client:
        _show(client.query(query).update(**changes), output)


def _read_targets(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"this is no JSON ({error}): {text}", param_hint="--qos") from None


@app.command("delete")
def delete(context: typer.Context, query: QueryArgument, output: OutputOption = Output.TABLE) -> None:
    """Stop a query and delete its results."""
    with client_of(context) as client:
        client.query(query).delete()
    if output is Output.JSON:
        show_json({"deleted": query})


@app.command("watch")
def watch(
    context: typer.Context,
    query: QueryArgument,
    after: Annotated[
        str | None, typer.Option(help="Start after this offset; `latest` for new rows only.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this many rows.")] = None,
    idle: Annotated[
        float | None, typer.Option(min=0, help="Stop when there was no row for this many seconds.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a query's results as they arrive, in a live table or as lines of JSON."""
    with client_of(context) as client:
        watch_rows(client, query, after, limit, idle, output)


def _show(info: QueryInfo, output: Output) -> None:
    if output is Output.JSON:
        show_json(info)
        return
    latency = info.latency_ms
    show_fields(
        [
            ("query", info.id),
            ("owner", info.owner or "none: it belongs to all"),
            ("name", info.spec.name),
            ("class", info.spec.class_),
            ("state", info.state if info.reason is None else f"{info.state}: {info.reason}"),
            ("wanted", info.desired),
            ("columns", ", ".join(f"{one.name} {one.type}" for one in info.fields)),
            ("results", info.results),
            ("epoch", info.epoch),
            ("plan replaced", info.revision),
            *(("not stored", str(one)) for one in (info.seam.not_retained if info.seam is not None else ())),
            ("created", info.created),
            ("starts at", None if info.spec.start_at is None else format_instant(info.spec.start_at)),
            ("stops at", None if info.spec.stop_at is None else format_instant(info.spec.stop_at)),
            ("latency ms", latency and latency.model_dump(exclude_none=True)),
            ("memory", _sizes(info.memory_bytes)),
            ("rows late", info.late),
            ("rows missed", info.missed),
            ("counters", info.counters),
            *_delivery_fields(info.delivery),
            *_checkpoint_fields(info.checkpoint),
            *_estimate_fields(info.admission),
        ]
    )


def _delivery_fields(delivery: QueryDelivery) -> list[tuple[str, object]]:
    """Return the names and values of a delivery guarantee."""
    guarantee = "" if delivery.guarantee is None else f"{delivery.guarantee}: "
    return [
        ("delivery", f"{guarantee}{delivery.detail}"),
        ("survives power loss", ", ".join(delivery.survives_power_loss) or "nothing"),
    ]


def _checkpoint_fields(checkpoint: CheckpointInfo | None) -> list[tuple[str, object]]:
    """Return the names and values of a checkpoint; empty without one."""
    if checkpoint is None:
        return []
    replaying = ", replaying" if checkpoint.replaying else ""
    fields: list[tuple[str, object]] = [
        ("checkpoint", _age(checkpoint)),
        ("checkpoint size", size(checkpoint.bytes)),
        ("checkpoint ms", checkpoint.duration_ms),
        ("rows replayed", f"{checkpoint.replayed_rows:,}{replaying}"),
    ]
    if checkpoint.failures:
        last = checkpoint.error or "the last attempt succeeded"
        fields.append(("checkpoint failures", f"{checkpoint.failures}: {last}"))
    return fields


def _sizes(counts: Mapping[str, int]) -> dict[str, str | None]:
    return {name: size(count) for name, count in counts.items()}


def _age(checkpoint: CheckpointInfo | None) -> str | None:
    """Return the age of a checkpoint as text, None if there is none."""
    if checkpoint is None or checkpoint.age_s is None:
        return None
    return f"{checkpoint.age_s:.1f} s ago"


def _show_validation(found: Validation) -> None:
    if not found.valid:
        complain("the query is not valid", found.errors)
        return
    rows = [
        (name, ", ".join(f"{one.name} {one.type}" for one in fields))
        for name, fields in found.schemas.items()
    ]
    show_table(["operator", "columns"], rows)
    show_table(["paths"], [(" > ".join(path),) for path in found.paths])
    show_fields([*_refused_fields(found), *_estimate_fields(found.admission)])
    _warn_of(found.admission)


def _refused_fields(found: Validation) -> list[tuple[str, object]]:
    """Return the backends that refuse a plan, with their reasons."""
    return [(f"not on {one.name}", "; ".join(one.reasons)) for one in found.backends if not one.supported]


def _estimate_fields(found: AdmissionEstimate | None) -> list[tuple[str, object]]:
    """Return the names and values of an estimate; empty without one."""
    if found is None:
        return []
    used, cost = found.utilisation, f"{found.cost_us_per_s:,.0f} us per second"
    known = used.before is not None and used.after is not None
    return [
        ("expected cost", f"{cost}, at {found.rows_per_s:,.0f} rows per second"),
        ("utilisation", f"{used.before:.1%}, with it {used.after:.1%}" if known else "not known yet"),
        *((f"{target.objective} target", _outlook(target)) for target in found.targets),
    ]


def _outlook(target: TargetOutlook) -> str:
    """Return whether a target is expected to be kept; the reason for not knowing says so itself."""
    return target.reason if target.kept is Outlook.UNKNOWN else f"{target.kept}: {target.reason}"


def _warn_of(found: AdmissionEstimate | None) -> None:
    """Print the warnings of an estimate."""
    for text in () if found is None else found.warnings:
        warn(text)
