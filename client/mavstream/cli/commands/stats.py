"""`mavstream stats` and `mavstream top`: metrics of the server, its classes and its queries."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mavstream._client import Client
from mavstream.cli.display.output import console, readable, show_fields, show_json, show_table
from mavstream.cli.display.readable import size
from mavstream.cli.session import Output, OutputOption, client_of
from mavstream_protocol.wire.resources import QueryInfo

_BUCKETS_PER_DOUBLING = 8
_TINTS = {"failed": "red", "paused": "yellow", "starting": "yellow"}


def show_stats(context: typer.Context, output: OutputOption = Output.TABLE) -> None:
    """Show metrics of the engine, the classes and the traffic."""
    with client_of(context) as client:
        found = client.stats()
    if output is Output.JSON:
        show_json(found)
        return
    engine = found["engine"]
    fields: list[tuple[str, object]] = [("engine", "is starting")]
    if engine is not None:
        fields = [
            ("policy", engine["policy"]),
            ("running for", f"{engine['uptime_s']:,.0f} s, busy {engine['busy_s']:,.1f} s"),
            ("memory", f"{size(engine['resident_bytes'])}; {_sizes(engine['memory_bytes'])}"),
            ("slices", f"{engine['slices']:,}, p99 {engine['slice_ms']['p99']:.3g} ms"),
        ]
    rows = ", ".join(f"{name} {number:,}" for name, number in found["tuples"].items())
    counts = [(name, found[name]) for name in ("streams", "producers", "subscribers", "connections")]
    show_fields([*fields, ("engine restarts", found["engine_restarts"]), ("rows", rows), *counts])
    show_table(
        ["class", "priority", "queries", "rows in", "results", "busy s", "p95 ms", "memory"],
        [
            (
                name,
                one["priority"],
                one["queries"],
                one["rows_in"],
                one["results"],
                one["busy_s"],
                one["latency_ms"]["p95"],
                size(sum(one["memory_bytes"].values())),
            )
            for name, one in _by_priority(found["classes"])
        ],
    )


def watch_load(
    context: typer.Context,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two updates.")] = 1.0,
    times: Annotated[int | None, typer.Option(min=1, help="Stop after this many updates.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Watch the load of classes and queries, live like htop; Ctrl-C ends it. JSON has a line per update."""
    with client_of(context) as client:
        before = _Sample(client)
        if output is Output.JSON or not console().is_terminal:
            for _ in range(times or 1):
                time.sleep(every)
                now = _Sample(client)
                if output is Output.JSON:
                    show_json({"classes": now.classes(before), "queries": now.queries(before)})
                else:
                    console().print(_screen(before, now, 1000))
                before = now
            return
        with Live(console=console(), screen=times is None, auto_refresh=False) as live:
            for number in count(1):
                time.sleep(every)
                now = _Sample(client)
                live.update(_screen(before, now, console().height), refresh=True)
                before = now
                if number == times:
                    return


class _Sample:
    """Metrics at one moment; rates follow from two of them."""

    def __init__(self, client: Client) -> None:
        self.stats = client.stats()
        self.found = client.queries()
        self.at = time.monotonic()

    def classes(self, before: _Sample) -> list[dict[str, Any]]:
        """Return the load of each class since an earlier sample, the highest priority first."""
        seconds = max(self.at - before.at, 1e-9)
        return [
            {
                "class": name,
                "priority": one["priority"],
                "queries": one["queries"],
                "busy": (one["busy_s"] - _old(before, name)["busy_s"]) / seconds,
                "rows_per_s": (one["rows_in"] - _old(before, name)["rows_in"]) / seconds,
                "results_per_s": (one["results"] - _old(before, name)["results"]) / seconds,
                "p95_ms": _p95(one["latency_buckets"], _old(before, name)["latency_buckets"]),
                "memory_bytes": sum(one["memory_bytes"].values()),
                "starved": one["starved"],
            }
            for name, one in _by_priority(self.stats["classes"])
        ]

    def queries(self, before: _Sample) -> list[dict[str, Any]]:
        """Return the load of each query since an earlier sample, the most results first."""
        seconds = max(self.at - before.at, 1e-9)
        old = {one.id: one.results for one in before.found}
        rows = [_query(one, (one.results - old.get(one.id, 0)) / seconds) for one in self.found]
        return sorted(rows, key=lambda row: (-row["results_per_s"], -row["memory_bytes"], row["query"]))


def _query(info: QueryInfo, rate: float) -> dict[str, Any]:
    return {
        "query": info.spec.name or info.id,
        "class": info.spec.class_,
        "state": info.state.value,
        "results_per_s": max(rate, 0.0),
        "results": info.results,
        "p95_ms": None if info.latency_ms is None else info.latency_ms.p95,
        "memory_bytes": sum(info.memory_bytes.values()),
    }


def _old(before: _Sample, name: str) -> Mapping[str, Any]:
    nothing = {"busy_s": 0.0, "rows_in": 0, "results": 0, "latency_buckets": {}}
    found: Mapping[str, Any] = before.stats["classes"].get(name, nothing)
    return found


def _p95(now: Mapping[str, int], before: Mapping[str, int]) -> float | None:
    """Return the 95th percentile, in ms, of the answers between two samples; None without any."""
    counts = {int(bucket): number - before.get(bucket, 0) for bucket, number in now.items()}
    left = 0.95 * sum(counts.values())
    for bucket in sorted(counts):
        left -= counts[bucket]
        if left <= 0 and counts[bucket] > 0:
            return float(2 ** ((bucket + 1) / _BUCKETS_PER_DOUBLING) / 1e6)
    return None


def _screen(before: _Sample, now: _Sample, height: int) -> RenderableType:
    engine = now.stats["engine"]
    head = "the engine is starting"
    if engine is not None:
        former = before.stats["engine"] or engine
        busy = (engine["busy_s"] - former["busy_s"]) / max(now.at - before.at, 1e-9)
        head = f"{engine['policy']}, busy {max(busy, 0):.0%}, {size(engine['resident_bytes'])}"
    subscribers = now.stats["subscribers"]
    title = Text(f"mavstream: {head}, {len(now.found)} queries, {subscribers} subscribers", style="bold")
    classes, queries = now.classes(before), now.queries(before)
    room = max(height - len(classes) - 9, 3)
    shown: list[RenderableType] = [title, _class_table(classes), _query_table(queries[:room])]
    if len(queries) > room:
        shown.append(Text(f"and {len(queries) - room:,} more queries", style="dim"))
    return Group(*shown)


def _class_table(classes: Sequence[Mapping[str, Any]]) -> Table:
    table = _table(("class",), ("priority", "queries", "busy", "rows/s", "results/s", "p95 ms", "memory"))
    for one in classes:
        table.add_row(
            Text(one["class"], style="red" if one["starved"] else ""),
            *map(readable, (one["priority"], one["queries"])),
            f"{one['busy']:.0%}",
            *map(readable, (one["rows_per_s"], one["results_per_s"], one["p95_ms"])),
            size(one["memory_bytes"]),
        )
    return table


def _query_table(queries: Sequence[Mapping[str, Any]]) -> Table:
    table = _table(("query", "class", "state"), ("results/s", "results", "p95 ms", "memory"))
    for one in queries:
        table.add_row(
            Text(one["query"]),
            Text(one["class"]),
            Text(one["state"], style=_TINTS.get(one["state"], "")),
            *map(readable, (one["results_per_s"], one["results"], one["p95_ms"])),
            size(one["memory_bytes"]),
        )
    return table


def _table(texts: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in texts:
        table.add_column(column, overflow="ellipsis", no_wrap=True)
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _by_priority(classes: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(classes.items(), key=lambda item: (-item[1]["priority"], item[0]))


def _sizes(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size(number)}" for name, number in counts.items())
