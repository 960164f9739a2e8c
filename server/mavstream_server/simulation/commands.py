"""The command `mavstream simulate`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import mavstream_server.scheduling  # noqa: F401 (registers the policies)
from mavstream_protocol.errors import InvalidObject, MavstreamError
from mavstream_server.simulation.entry import compare as compare_policies
from mavstream_server.simulation.policy_files import policy_name
from mavstream_server.simulation.report.result import Result
from mavstream_server.simulation.report.tables import comparison, series_table, single
from mavstream_server.simulation.scenario import Service
from mavstream_server.simulation.series import SETTINGS, Sweep, parse_sweep, run_series, summarised, write_csv
from mavstream_server.simulation.workload.export import from_server as export
from mavstream_server.simulation.workload.loading import load, names, to_yaml
from mavstream_server.simulation.workload.model import Workload

app = typer.Typer(no_args_is_help=False)

_PICTURES = (".png", ".svg")
_WIDE = 200  # columns where the width of the terminal is unknown


@app.command()
def simulate(
    workload: Annotated[
        str | None, typer.Argument(help="Name of a built-in workload, or a YAML file.")
    ] = None,
    policy: Annotated[
        str, typer.Option(help="The scheduling policy, or module:Class of one of your own.")
    ] = "cqc",
    options: Annotated[str | None, typer.Option(help="Options of the policy, as a JSON object.")] = None,
    compare: Annotated[
        str | None, typer.Option(metavar="POLICIES", help="Compare several policies: rr,hr,mine:Mine.")
    ] = None,
    cores: Annotated[int | None, typer.Option(min=1, max=64, help="Cores that run operators.")] = None,
    source_cores: Annotated[
        int | None, typer.Option(min=0, max=16, help="Cores that run only sources.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Virtual seconds; by default until all tuples are processed.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same run.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Runs with as many seeds, from --seed on.")] = 1,
    sweep: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=FIRST:LAST:STEP",
            help="Runs with several values (or NAME=VALUE,VALUE) of utilisation, cores, source_cores, "
            "seconds or a parameter of the workload.",
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, help="Write a line per run and class; - is stdout."),
    ] = None,
    utilisation: Annotated[
        float | None, typer.Option(min=0.01, max=1.5, help="Scale the work on tuples to this utilisation.")
    ] = None,
    sources: Annotated[
        str | None, typer.Option(help="How sources are run: between_slices, own_core, ...")
    ] = None,
    parameter: Annotated[
        list[str] | None, typer.Option(metavar="NAME=NUMBER", help="Set a parameter of the workload.")
    ] = None,
    from_server: Annotated[
        str | None, typer.Option(metavar="URL", help="Use the queries of a running server as the workload.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Save the workload as a YAML file.")
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, help="Draw a box plot, as .png or .svg."),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Simulate a workload under a scheduling policy in virtual time."""
    try:
        if picture is not None:
            _check_picture(picture)
        model = _workload(workload, parameter, from_server)
        if save is not None:
            _save(model, save)
        settings = {
            "cores": cores,
            "source_cores": source_cores,
            "seconds": seconds,
            "seed": seed,
            "utilisation": utilisation,
            "sources": _service(sources),
        }
        if compare is not None:
            chosen: list[Any] = [policy_name(name.strip()) for name in compare.split(",") if name.strip()]
        else:
            chosen = [(policy_name(policy), _options(options))]
        if seeds > 1 or sweep is not None or csv is not None:
            if picture is not None:
                raise typer.BadParameter(
                    "--picture draws one run of each policy: leave out --seeds and --sweep"
                )
            _run_series(
                workload, parameter, model, chosen, settings, seeds, _sweep(sweep), csv, as_json=json_
            )
            return
        results = compare_policies(model, chosen, **settings)
        _show(results, compared=compare is not None, as_json=json_)
        if picture is not None:
            _draw(results, picture)
    except (MavstreamError, typer.BadParameter) as error:
        _complain(error)
        raise typer.Exit(2) from None


def _sweep(text: str | None) -> Sweep | None:
    try:
        return None if text is None else parse_sweep(text)
    except ValueError as error:
        raise typer.BadParameter(f"--sweep: {error}") from None


def _run_series(
    workload: str | None,
    parameters: list[str] | None,
    model: Workload,
    chosen: list[Any],
    settings: dict[str, Any],
    seeds: int,
    sweep: Sweep | None,
    file: Path | None,
    *,
    as_json: bool,
) -> None:
    """Run several seeds and values, and show means with confidence intervals, or write all runs."""

    def compared(value: float | None, seed: int) -> Mapping[str, Result]:
        given, used = {**settings, "seed": seed}, model
        if sweep is not None and value is not None:
            if sweep.name in SETTINGS:
                given[sweep.name] = int(value) if sweep.name.endswith("cores") else value
            elif workload is None:
                raise typer.BadParameter(f"--sweep: the workload of a server has no parameter '{sweep.name}'")
            else:
                used = load(workload, dict(map(_parameter, [*(parameters or ()), f"{sweep.name}={value}"])))
        return compare_policies(used, chosen, **given)

    first = settings["seed"]
    runs = list(run_series(compared, sweep, range(first, first + seeds)))
    if file is None:
        rows = list(summarised(runs))
        if as_json:
            names = ("value", "policy", "class", "mean_ms", "half_interval_ms")
            typer.echo(json.dumps([dict(zip(names, row, strict=True)) for row in rows]))
            return
        console = Console(highlight=False)
        name = None if sweep is None else sweep.name
        console.print(series_table(name, rows, seeds))
    elif str(file) == "-":
        write_csv(sys.stdout, runs, sweep)
    else:
        try:
            with file.open("w", encoding="utf-8", newline="") as opened:
                write_csv(opened, runs, sweep)
        except OSError as error:
            raise typer.BadParameter(f"--csv: cannot write '{file}' ({error.strerror})") from None


def _workload(name: str | None, parameters: list[str] | None, server: str | None) -> Workload:
    if (name is None) == (server is None):
        raise typer.BadParameter(
            f"expected either a workload or --from-server; built-in workloads are: {', '.join(names())}"
        )
    if server is not None:
        return export(server)
    assert name is not None
    return load(name, dict(_parameter(text) for text in parameters or ()))


def _parameter(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name.strip(), float(value)
    except ValueError:
        raise typer.BadParameter(f"--parameter: expected NAME=NUMBER, got {text!r}") from None


def _service(name: str | None) -> str | None:
    if name is not None and name not in [*Service]:
        raise typer.BadParameter(f"--sources: expected one of {', '.join(Service)}, got {name!r}")
    return name


def _options(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise typer.BadParameter(f"--options: expected a JSON object, got {text!r} ({error})") from None
    if not isinstance(found, dict):
        raise typer.BadParameter(f"--options: expected a JSON object, got {text!r}")
    return found


def _save(model: Workload, file: Path) -> None:
    try:
        file.write_text(to_yaml(model), encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"--save: cannot write '{file}' ({error.strerror})") from None


def _show(results: Mapping[str, Result], compared: bool, as_json: bool) -> None:
    if as_json:
        summary = {name: result.summary() for name, result in results.items()}
        typer.echo(json.dumps(summary if compared else next(iter(summary.values()))))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDE)
    console.print(comparison(results) if compared else single(next(iter(results.values()))))


def _check_picture(file: Path) -> None:
    """Reject a picture that could not be drawn, before anything is simulated."""
    if file.suffix.lower() not in _PICTURES:
        raise typer.BadParameter(
            f"--picture: '{file}' ends in '{file.suffix}'; supported formats are {' and '.join(_PICTURES)}"
        )
    try:
        import mavstream_server.simulation.report.pictures  # noqa: F401
    except ImportError as error:
        raise typer.BadParameter(
            f"--picture needs an optional dependency ({error}): pip install 'mavstream[pictures]'"
        ) from None


def _draw(results: Mapping[str, Result], file: Path) -> None:
    from mavstream_server.simulation.report.pictures import draw

    try:
        draw(results, file)
    except OSError as error:
        raise typer.BadParameter(f"--picture: cannot write '{file}' ({error.strerror})") from None


def _complain(error: Exception) -> None:
    if isinstance(error, InvalidObject):
        lines = [f"{item.pointer}: {item.detail}" for item in error.items]
    else:
        lines = [str(error)]
    for line in lines:
        typer.echo(f"mavstream simulate: {line}", err=True)


if __name__ == "__main__":
    app()
