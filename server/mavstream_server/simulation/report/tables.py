"""Tables of results for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from mavstream_server.simulation.report.metrics import ResponseMetrics
from mavstream_server.simulation.report.result import Result

_LEVELS = (50, 95, 99)


def single(result: Result) -> RenderableType:
    """Return the metrics of one run as tables."""
    classes = _table("class", "priority", "answers", "mean ms", *(f"p{level} ms" for level in _LEVELS))
    for name, metrics in result.classes.items():
        classes.add_row(escape(name), str(metrics.priority), str(metrics.answers), *_times(metrics))
    classes.add_row("all", "", str(result.overall.answers), *_times(result.overall))
    return Group(_head(result), classes, _facts(result))


def comparison(results: Mapping[str, Result]) -> RenderableType:
    """Return a table of several runs: mean response times by class, and the ratios derived from them."""
    first = next(iter(results.values()))
    table = _table(
        "policy", *(f"{name} ms" for name in first.classes), "weighted ms", "inversion", "starvation", "busy"
    )
    for name, result in results.items():
        table.add_row(
            escape(name),
            *(_number(metrics.mean_ms) for metrics in result.classes.values()),
            _number(result.weighted_mean_ms),
            _number(result.inversion_ratio),
            _number(result.starvation_ratio),
            f"{result.utilisation:.1%}",
        )
    return Group(f"{escape(first.workload)}: mean response times by class", table)


def series_table(
    sweep: str | None,
    rows: Iterable[tuple[float | None, str, str, float | None, float | None]],
    seeds: int,
) -> RenderableType:
    """Return a table of a series: mean response times with 95 % confidence intervals."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in (*([] if sweep is None else [sweep]), "policy", "class"):
        table.add_column(escape(name))
    for name in ("mean ms", "± ms"):
        table.add_column(name, justify="right")
    for value, policy, class_, mean, half in rows:
        head = [] if sweep is None else [_number(value)]
        table.add_row(*head, escape(policy), escape(class_), _number(mean), _number(half))
    return Group(f"mean response times of {seeds} seeds, with 95 % confidence intervals", table)


def _head(result: Result) -> str:
    cores = f"{result.cores} core{'s' if result.cores > 1 else ''}"
    return (
        f"{escape(result.workload)} under {escape(result.policy)}, {cores}, sources {result.sources}, "
        f"{result.seconds:.3g} virtual seconds"
    )


def _facts(result: Result) -> Table:
    facts = Table(box=None, show_header=False, pad_edge=False)
    rows = [
        ("weighted mean", f"{_number(result.weighted_mean_ms)} ms"),
        ("inversion ratio", _number(result.inversion_ratio)),
        ("starvation ratio", _number(result.starvation_ratio)),
        ("busy", f"{result.utilisation:.1%}"),
        ("queues", f"{result.queues.mean_bytes:.0f} bytes on average, {result.queues.max_bytes} at most"),
        ("simulated", f"{result.tuple_steps} tuple-steps in {result.wall_s:.2f} s"),
    ]
    for name, value in rows:
        facts.add_row(f"[bold]{name}[/bold]", value)
    return facts


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(escape(name), justify="right")
    return table


def _times(metrics: ResponseMetrics) -> list[str]:
    return [_number(metrics.mean_ms), *(_number(metrics.at(level)) for level in _LEVELS)]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
