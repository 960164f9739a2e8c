"""Terminal output of the demo: the acts of its story, a live table, and a summary at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mavstream_feeder.demo.latencies import Latencies
from mavstream_feeder.demo.outcome import QUANTILES, ClassMetrics, Outcome
from mavstream_feeder.demo.story import ACTS, Act, Alarm, Measured, Told
from mavstream_feeder.reports import Report

_BAR = 34
"""Characters of the longest bar."""
_COLOURS = {"alarms": "red", "control": "yellow", "comfort": "cyan"}


class View:
    """Shows the story and metrics of the classes; prints nothing unless `live`."""

    def __init__(self, *, live: bool) -> None:
        self._console = Console(quiet=not live)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._before: tuple[float, dict[str, int]] = (0.0, {})

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False)

    def start(self) -> None:
        """Start the live table."""
        if self._console.is_terminal:
            self._live.start()

    def stop(self) -> None:
        """Remove the live table."""
        self._live.stop()

    def act(self, act: Act, policy: str, clock: str | None) -> None:
        """Announce an act; `clock` is the time of day in the homes."""
        line = Table.grid(padding=(0, 2))
        line.add_row(
            Text(clock or "", style="dim"),
            Text(f"{ACTS.index(act) + 1}", style="bold"),
            act.title.format(policy=policy),
        )
        self._console.print(line)

    def update(
        self,
        passed: float,
        seconds: float,
        classes: dict[str, ClassMetrics],
        recent: dict[str, Latencies],
        fed: Report,
        clock: str | None,
    ) -> None:
        """Show current metrics; throughput is that since the last update, latencies are recent ones."""
        if not self._live.is_started:
            return
        then, results = self._before
        rates = {
            name: (each.results - results.get(name, 0)) / max(passed - then, 1e-9)
            for name, each in classes.items()
        }
        self._before = passed, {name: each.results for name, each in classes.items()}
        title = f"{passed:5.1f} of {seconds:g} s   {fed.acked:,} rows acknowledged"
        if clock is not None:
            title += f"   {clock} in the homes"
        latencies = {name: (each.p50, each.p99) for name, each in recent.items()}
        table = _table(classes, rates, ("recent p50", "p99"), latencies)
        self._live.update(Group(Text(), Text(title), Text(), table), refresh=True)

    def summary(self, seconds: float, outcome: Outcome) -> None:
        """Print the summary."""
        title = f"{outcome.tuples_in:,} rows in {seconds:.1f} s"
        if outcome.tuples_acked is not None:
            title += f", {outcome.tuples_acked:,} acknowledged, {outcome.tuples_lost} lost"
        if outcome.told is None:
            rates = {name: each.results / seconds for name, each in outcome.classes.items()}
            latencies = {name: each.latency_ms.values() for name, each in outcome.classes.items()}
            table = _table(outcome.classes, rates, QUANTILES, latencies)
            self._console.print(Group(Text(title), Text(), table))
            return
        self._console.print(Group(Text(), _acts(outcome.told), Text(), *_bars(outcome.told)))
        if outcome.told.fires and not outcome.told.alarms:
            self._console.print("", "No fire was found while the demo watched.", sep="\n")
        for alarm in outcome.told.alarms:
            self._console.print(Text(), Text(_said(alarm)), sep="\n")
        self._console.print(Text(), Text(title, style="dim"), sep="\n")


def _table(
    classes: Mapping[str, ClassMetrics],
    rates: Mapping[str, float],
    headings: Iterable[str],
    latencies: Mapping[str, Iterable[float | None]],
) -> RenderableType:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    table.add_column("class")
    for heading in ("priority", "queries", "results", "per s", *headings):
        table.add_column(heading, justify="right")
    for name, each in classes.items():
        counts = (str(each.priority), str(each.queries), f"{each.results:,}", f"{rates[name]:,.0f}")
        table.add_row(Text(name, style=_COLOURS.get(name, "")), *counts, *map(_time, latencies[name]))
    return table


def _acts(told: Told) -> RenderableType:
    """Return the p99 of each class in each act."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("p99 of the latency")
    for each in told.acts:
        table.add_column(_heading(each), justify="right")
    for name in told.acts[0].classes if told.acts else ():
        values = (_time(each.classes[name].p99) for each in told.acts)
        table.add_row(Text(name, style=_COLOURS.get(name, "")), *values)
    return table


def _heading(measured: Measured) -> str:
    return f"overload, {measured.policy}" if measured.act.loaded else measured.act.name


def _bars(told: Told) -> list[RenderableType]:
    """Return the p99 of the alarms under the same load, side by side, as bars."""
    loaded = [(each, each.classes["alarms"].p99) for each in told.acts if each.act.loaded]
    longest = max((value for _, value in loaded if value is not None), default=None)
    if longest is None:
        return []
    table = Table.grid(padding=(0, 1))
    for measured, value in loaded:
        length = 0 if value is None else max(round(_BAR * value / longest), 1)
        bar = Text("█" * length, style="red" if value == longest else "green")
        table.add_row(f"  {measured.policy}", bar, _time(value))
    return [Text("The alarms under the same load, p99:"), table]


def _said(alarm: Alarm) -> str:
    fire = alarm.fire
    return (
        f"Fire in home {fire.home}, {fire.room}: found after {alarm.after_s:.0f} s in the home, when it was "
        f"{alarm.celsius:g} degrees there, and {_time(alarm.delay_ms)} after this reading."
    )


def _time(ms: float | None) -> str:
    """Return a time as people read it."""
    if ms is None:
        return "-"
    return f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms:.0f} ms" if ms >= 10 else f"{ms:.1f} ms"
