"""Pictures of a home-day: motion, doors, temperature and power over the hours, with anomalies marked."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from mavstream_protocol.instants import format_instant
from mavstream_protocol.manifest import InvalidDataset, Manifest
from mavstream_spark.errors import InvalidJob

_HOUR = 3_600_000_000
_PANELS = (
    ("motion", "room", "level", "movement"),
    ("doors", "door", "open", "doors"),
    ("temperature", "room", "celsius", "degrees"),
    ("power", "device", "watts", "watts"),
)


def draw_day(manifest: Manifest, folder: Path, home: int, day: str | None, picture: Path) -> None:
    """Draw one home on one day into a file; raises InvalidJob or InvalidDataset."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InvalidJob(f"pictures need matplotlib ({error}): pip install 'mavstream[pictures]'") from None
    if manifest.kind != "homes" or manifest.begin is None:
        raise InvalidDataset(f"'{folder}' is a dataset of the kind {manifest.kind}: only homes can be drawn")
    day = day or format_instant(manifest.begin)[:10]
    figure = Figure(figsize=(11, 9), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(_PANELS), 1, sharex=True)
    for panel, (stream, place, value, label) in zip(panels, _PANELS, strict=True):
        rows = _rows(manifest, folder, stream, day, home)
        _draw(panel, rows, place, value, day)
        panel.set_ylabel(label)
    for begin, end, kind in _anomalies(manifest, folder, day, home):
        for panel in panels:
            panel.axvspan(begin, end, color="tab:red", alpha=0.15)
        panels[0].annotate(
            kind.replace("_", " "), (begin, 0.98), xycoords=("data", "axes fraction"), va="top"
        )
    panels[0].set_title(f"home {home}, {day}")
    panels[-1].set_xlim(0, 24)
    panels[-1].set_xticks(range(0, 25, 3))
    panels[-1].set_xlabel("hour")
    figure.savefig(picture)


def _rows(manifest: Manifest, folder: Path, stream: str, day: str, home: int) -> pa.Table:
    files = [folder / file.path for file in manifest.stream(stream).files if f"day={day}/" in file.path]
    if not files:
        begin, end = manifest.begin or 0, manifest.end or 0
        last = date.fromisoformat(format_instant(end)[:10]) - timedelta(days=1)
        raise InvalidJob(
            f"stream '{stream}' has no rows on {day}: give a day from {format_instant(begin)[:10]} to {last}"
        )
    tables = [
        pyarrow.parquet.read_table(file, filters=[("home", "=", home)], partitioning=None) for file in files
    ]
    rows = pa.concat_tables(tables)
    if not rows.num_rows and stream != "doors":
        raise InvalidJob(f"home {home} has no rows in '{stream}' on {day}: homes are numbered from 1")
    return rows


def _draw(panel: Any, rows: pa.Table, place: str, value: str, day: str) -> None:
    names = sorted(pc.unique(rows.column(place)).to_pylist())
    for number, name in enumerate(names):
        part = rows.filter(pc.equal(rows.column(place), name))
        hours = _hours(part.column("at"), day)
        values = part.column(value).to_pylist()
        if value in ("celsius", "watts"):
            panel.plot(
                hours, [float("nan") if each is None else each for each in values], label=name, linewidth=0.9
            )
        else:
            panel.scatter(
                hours, [number] * len(hours), s=[20 * float(each or 0.02) for each in values], alpha=0.5
            )
    if value in ("celsius", "watts"):
        panel.legend(ncols=3, fontsize="small", loc="upper left")
    else:
        panel.set_yticks(range(len(names)), names)


def _anomalies(manifest: Manifest, folder: Path, day: str, home: int) -> list[tuple[float, float, str]]:
    if manifest.truth is None:
        return []
    anomalies = []
    for file in manifest.truth.files:
        if f"day={day}/" in file.path:
            rows = pyarrow.parquet.read_table(folder / file.path, partitioning=None)
            rows = rows.filter(pc.equal(rows.column("home"), home))
            spans = zip(_hours(rows.column("at"), day), _hours(rows.column("until"), day), strict=True)
            anomalies += [
                (begin, end, kind)
                for (begin, end), kind in zip(spans, rows.column("kind").to_pylist(), strict=True)
            ]
    return anomalies


def _hours(times: pa.ChunkedArray, day: str) -> list[float]:
    midnight = (date.fromisoformat(day) - date(1970, 1, 1)).days * 24 * _HOUR
    micros = times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return [(each - midnight) / _HOUR for each in micros]
