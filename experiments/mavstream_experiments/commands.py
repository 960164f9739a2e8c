"""The command `mavstream experiments`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import mavstream_server.scheduling  # noqa: F401 (registers the policies)
from mavstream_experiments.model import Experiment
from mavstream_experiments.registry import UnknownExperiment, experiments
from mavstream_experiments.report import write
from mavstream_experiments.running import run as run_experiments
from mavstream_experiments.running import tasks_of
from mavstream_protocol.errors import MavstreamError

app = typer.Typer(no_args_is_help=True, help="Run the experiments of the papers on the simulator.")

_NO_PICTURES = "pictures need more than is installed: pip install 'mavstream[pictures]', or use --no-pictures"


@app.command("list")
def list_(
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON array and nothing else.")] = False,
) -> None:
    """List the experiments."""
    known = experiments().values()
    if json_:
        shown = [
            {"name": one.name, "paper": one.paper, "title": one.title, "claims": len(one.claims)}
            for one in known
        ]
        typer.echo(json.dumps(shown))
        return
    table = Table("name", "paper", "title", "claims", "runs", box=None)
    for one in known:
        runs = str(len(one.cells) * one.seeds)
        table.add_row(one.name, one.paper, one.title, str(len(one.claims)), runs)
    Console(highlight=False).print(table)


@app.command()
def run(
    names: Annotated[list[str] | None, typer.Argument(help="Names of experiments, as in `list`.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Run all experiments.")] = False,
    out: Annotated[Path, typer.Option(file_okay=False, help="Directory for page, JSON and pictures.")] = Path(
        "docs/experiments"
    ),
    seeds: Annotated[
        int | None, typer.Option(min=1, max=30, help="Seeds of each cell; verdicts need 3.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes (default: one per core).")] = None,
    pictures: Annotated[bool, typer.Option(help="Draw a picture of each experiment.")] = True,
    json_: Annotated[
        bool, typer.Option("--json", help="Print the verdicts as JSON and nothing else.")
    ] = False,
) -> None:
    """Run experiments and compare them with what was published."""
    try:
        chosen = _chosen(names or [], all_)
        if pictures:
            _check_pictures()
        found = _run(chosen, seeds, workers, quiet=json_)
        entries = write(out, experiments(), found, pictures)
    except MavstreamError as error:
        typer.echo(f"mavstream experiments: {error}", err=True)
        raise typer.Exit(2) from None
    if json_:
        typer.echo(json.dumps(entries))
    else:
        _show(entries)
        typer.echo(f"written to {out}")


def _chosen(names: Sequence[str], all_: bool) -> list[Experiment]:
    known = experiments()
    if bool(names) == all_:
        raise UnknownExperiment(
            "name the experiments to run (see `mavstream experiments list`) or give --all"
        )
    for name in names:
        if name not in known:
            raise UnknownExperiment(f"unknown experiment {name!r}; there are: {', '.join(known)}")
    return list(known.values()) if all_ else [known[name] for name in names]


def _check_pictures() -> None:
    """Exit before any simulation if pictures cannot be drawn."""
    try:
        import mavstream_experiments.pictures  # noqa: F401
    except ImportError:
        typer.echo(f"mavstream experiments: {_NO_PICTURES}", err=True)
        raise typer.Exit(2) from None


def _run(chosen: Sequence[Experiment], seeds: int | None, workers: int | None, quiet: bool) -> Any:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as progress:
        bars = {
            one.name: progress.add_task(one.name, total=len(tasks_of([one], seeds)), visible=False)
            for one in chosen
        }
        total = progress.add_task("all", total=len(tasks_of(chosen, seeds)))

        def done(task: Any) -> None:
            progress.update(bars[task.experiment], advance=1, visible=True)
            if progress.tasks[bars[task.experiment]].finished:
                progress.update(bars[task.experiment], visible=False)
            progress.advance(total)

        return run_experiments(chosen, seeds, workers, done)


def _show(entries: Sequence[dict[str, Any]]) -> None:
    table = Table("experiment", "claim", "published", "measured", "verdict", box=None)
    for one in entries:
        table.add_row(one["experiment"], one["claim"], one["published"], str(one["measured"]), one["verdict"])
    Console(highlight=False).print(table)


if __name__ == "__main__":
    app()
