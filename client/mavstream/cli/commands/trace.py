"""`mavstream scheduler trace`: which operators ran when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mavstream.cli.display.output import complain, show_fields, show_json, show_table
from mavstream.cli.session import Output, OutputOption, client_of
from mavstream_protocol.scheduling import SchedulerTrace, TracedSlice

PICTURES = (".png", ".svg")


@dataclass(slots=True)
class ClassTotals:
    """The share of a class in a trace."""

    slices: int = 0
    tuples: int = 0
    busy_ms: float = 0.0
    longest_ms: float = 0.0

    def add(self, one: TracedSlice) -> None:
        """Add a slice to the totals."""
        self.slices += 1
        self.tuples += one.consumed
        self.busy_ms += one.took_ms
        self.longest_ms = max(self.longest_ms, one.took_ms)


def trace(
    context: typer.Context,
    seconds: Annotated[float, typer.Option(help="Seconds to record, at most 60.")] = 2.0,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, help="Also draw a timeline, as .png or .svg."),
    ] = None,
    rows: Annotated[int, typer.Option(min=0, help="Number of slices in the table.")] = 40,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show which operators ran when, how long, and on how many tuples."""
    if picture is not None:
        _check_picture(picture)
    with client_of(context) as client:
        known = client.stats()["classes"]
        found = client.trace(seconds)
    # Classes whose queries did not run at all are of interest, too.
    wanted = [name for name, metrics in known.items() if metrics["queries"]]
    names = {*wanted, *(one.class_ for one in found.slices)}
    important = sorted(names, key=lambda name: (-known.get(name, {}).get("priority", 0), name))
    totals = _totals(found, important)
    if output is Output.JSON:
        show_json(found)
    else:
        _show(found, totals, rows)
    if picture is not None:
        _draw(found, totals, picture)


def _check_picture(file: Path) -> None:
    """Check before anything is recorded that the picture can be drawn."""
    if file.suffix.lower() not in PICTURES:
        raise typer.BadParameter(
            f"expected a picture that ends in {' or '.join(PICTURES)}, got '{file}'",
            param_hint="--picture",
        )
    try:
        import mavstream.cli.display.timeline  # noqa: F401
    except ImportError as error:
        complain(
            f"'mavstream scheduler trace --picture' needs packages that are not installed ({error}): "
            "pip install 'mavstream[pictures]'"
        )
        raise typer.Exit(2) from None


def _totals(found: SchedulerTrace, names: Iterable[str]) -> dict[str, ClassTotals]:
    totals = {name: ClassTotals() for name in names}
    for one in found.slices:
        totals[one.class_].add(one)
    return totals


def _recorded_ms(found: SchedulerTrace) -> float:
    """Return the time that the slices cover: a full trace ends with its last slice."""
    if not found.left_out:
        return found.seconds * 1000
    return found.slices[-1].at_ms + found.slices[-1].took_ms


def _show(found: SchedulerTrace, totals: dict[str, ClassTotals], rows: int) -> None:
    time = _recorded_ms(found)
    busy = sum(total.busy_ms for total in totals.values())
    show_fields(
        [
            ("policy", found.policy),
            ("started", found.started),
            ("recorded", f"{time:.0f} ms, of which {_share(busy, time)} in slices"),
        ]
    )
    show_table(
        ["class", "slices", "tuples", "busy ms", "share", "longest ms"],
        [
            (name, one.slices, one.tuples, _ms(one.busy_ms), _share(one.busy_ms, time), _ms(one.longest_ms))
            for name, one in totals.items()
        ],
    )
    _show_slices(found, rows)


def _show_slices(found: SchedulerTrace, rows: int) -> None:
    shown = [
        (
            _ms(one.at_ms),
            _ms(one.took_ms),
            one.class_,
            one.query,
            " > ".join(one.operators),
            one.consumed,
            one.produced,
        )
        for one in found.slices[:rows]
    ]
    if shown:
        show_table(["at ms", "took ms", "class", "query", "operators", "in", "out"], shown)
    if len(shown) < len(found.slices):
        typer.echo(f"{len(found.slices) - len(shown)} more slices are not shown: give --rows, or -o json")
    if found.left_out:
        typer.echo(
            f"{found.left_out} later slices were not recorded, because a trace holds "
            f"{len(found.slices)}: trace for a shorter time"
        )


def _draw(found: SchedulerTrace, totals: dict[str, ClassTotals], file: Path) -> None:
    # Imported here: it takes a second to load, and needs an extra.
    from mavstream.cli.display.timeline import draw

    time = _recorded_ms(found)
    captions = {name: f"{_share(one.busy_ms, time)} of the time" for name, one in totals.items()}
    try:
        draw(found, captions, file)
    except OSError as error:
        complain(f"the picture '{file}' cannot be written ({error.strerror}): give another --picture")
        raise typer.Exit(2) from None


def _ms(time: float) -> str:
    return f"{time:.3f}"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %"
