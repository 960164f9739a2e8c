"""Stream scripts: the rows and marks written to a stream, independent of frame boundaries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.support.differential.columns import ARRIVAL_BASE, EVENT_TIME, POOL, Domain

from mavstream_protocol.schema import Field
from mavstream_server.log.format.layout import FrameKind
from mavstream_server.log.options import LogOptions
from mavstream_server.testing import ManualClock, ScriptedStream

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that a producer sends at one time."""

    rows: tuple[Row, ...]
    producer: int = 0


@dataclass(frozen=True, slots=True)
class Advance:
    """Time passes."""

    nanoseconds: int


@dataclass(frozen=True, slots=True)
class MarkStep:
    """A mark between the rows."""

    kind: FrameKind
    producer: int = 0
    watermark: int | None = None


Step = Rows | Advance | MarkStep


@dataclass(frozen=True, slots=True)
class StreamScript:
    """A stream and everything that is written to it; it is complete after the last step."""

    name: str
    fields: tuple[Field, ...]
    event_time: str | None
    lateness: int
    steps: tuple[Step, ...]

    @property
    def rows(self) -> list[Row]:
        """All rows, in stream order."""
        return [row for step in self.steps if isinstance(step, Rows) for row in step.rows]

    def open(self, path: Path, options: LogOptions | None = None) -> ScriptedStreamWriter:
        """Create the stream's log in a directory, without rows."""
        return ScriptedStreamWriter(self, path, options)

    def write(self, path: Path, cuts: Random | None, options: LogOptions | None = None) -> ScriptedStream:
        """Write the whole log, each step's rows in one frame or cut at random."""
        writer = self.open(path, options)
        for _ in writer.steps(cuts):
            pass
        return writer.stream


class ScriptedStreamWriter:
    """Writes a script to a log."""

    def __init__(self, script: StreamScript, path: Path, options: LogOptions | None) -> None:
        fields = ", ".join(f"{f.name} {f.type}{' null' if f.nullable else ''}" for f in script.fields)
        self._script = script
        self._clock = ManualClock(ARRIVAL_BASE * 1000)
        self.stream = ScriptedStream(
            path,
            script.name,
            fields,
            self._clock,
            event_time=script.event_time,
            lateness=script.lateness,
            options=options,
        )

    def steps(self, cuts: Random | None) -> Iterator[None]:
        """Write one frame per turn."""
        for step in self._script.steps:
            match step:
                case Advance():
                    self._clock.advance(nanoseconds=step.nanoseconds)
                case MarkStep():
                    self.stream.mark(step.kind, step.producer, step.watermark)
                    yield
                case Rows():
                    for part in _cut(step.rows, cuts):
                        self.stream.rows(*part, producer=step.producer)
                        yield
        self.stream.complete()
        yield


def _cut(rows: tuple[Row, ...], cuts: Random | None) -> Iterator[tuple[Row, ...]]:
    start = 0
    while start < len(rows):
        stop = len(rows) if cuts is None else start + cuts.choice((1, 1, 2, 3, 7, 20, len(rows)))
        yield rows[start:stop]
        start = stop


@dataclass(frozen=True, slots=True)
class Times:
    """Base and resolution of the times of a case, in us."""

    base: int
    tick: int


def random_times(random: Random) -> Times:
    """Choose the base time of a case: near the clock's start, or around 1970, with negative times."""
    return Times(random.choice((ARRIVAL_BASE, ARRIVAL_BASE, ARRIVAL_BASE, 0)), random.choice((1, 500, 1000)))


def random_script(random: Random, name: str, times: Times) -> StreamScript:
    """Write a stream of up to about 300 rows."""
    domains = random.sample(POOL, random.randint(1, 6))
    count = random.choice((0, 1, 3, 10, 25, 25, 25, 60, 60, 60, 60, 120, 120, 300))
    if random.random() < 0.3:
        fields = tuple(domain.field for domain in domains)
        return StreamScript(name, fields, None, 0, _arrival_steps(random, domains, count, times))
    index = random.randint(0, len(domains))
    others = [domain.field for domain in domains]
    fields = (*others[:index], EVENT_TIME, *others[index:])
    lateness = random.choice((0, 0, 3, 10, 40))
    steps = _event_steps(random, domains, index, count, lateness, times)
    return StreamScript(name, fields, EVENT_TIME.name, lateness * times.tick, steps)


def _arrival_steps(random: Random, domains: list[Domain], count: int, times: Times) -> tuple[Step, ...]:
    steps: list[Step] = [Advance(random.randrange(1500))] if random.random() < 0.3 else []
    while count > 0:
        size = min(count, random.choice((1, 1, 2, 5, 20)))
        count -= size
        rows = tuple(tuple(d.value(random, times.base) for d in domains) for _ in range(size))
        steps.append(Rows(rows, random.randrange(2)))
        if random.random() < 0.8:
            steps.append(
                Advance(times.tick * 1000 * random.choice((0, 1, 2, 5, 30)) + random.randrange(1500))
            )
        if random.random() < 0.1:
            steps.append(_arrival_mark(random, times.tick))
    return tuple(steps)


def _arrival_mark(random: Random, tick: int) -> MarkStep:
    """Return a mark of a stream without late rows: even a future watermark has no effect."""
    kind = random.choice((FrameKind.CLOCK, FrameKind.CLOCK, FrameKind.IDLE, FrameKind.WATERMARK))
    future = ARRIVAL_BASE + tick * random.randrange(300)
    return MarkStep(kind, 0, future if kind is FrameKind.WATERMARK else None)


def _event_steps(
    random: Random, domains: list[Domain], index: int, count: int, lateness: int, times: Times
) -> tuple[Step, ...]:
    producers = random.choice((1, 1, 2, 3))
    shape = random.choice(("in order", "within lateness", "late", "very late"))
    jitter = {"in order": 0, "within lateness": lateness, "late": lateness + 10, "very late": lateness + 60}
    spread = jitter[shape]
    now = [random.choice((0, 0, -20)) for _ in range(producers)]
    steps: list[Step] = []
    if random.random() < 0.2:
        steps.append(_event_mark(random, producers, times.base, times.tick))
    while count > 0:
        producer = random.randrange(producers)
        size = min(count, random.choice((1, 2, 5, 20)))
        count -= size
        rows = []
        for _ in range(size):
            now[producer] += random.choices((0, 1, 2, 4, 40, 10_000), (330, 330, 150, 150, 30, 2))[0]
            back = random.randint(0, spread) if random.random() < 0.5 else 0
            values = [domain.value(random, times.base) for domain in domains]
            rows.append((*values[:index], times.base + (now[producer] - back) * times.tick, *values[index:]))
        steps.append(Rows(tuple(rows), producer))
        if random.random() < 0.12:
            steps.append(_event_mark(random, producers, times.base + max(now) * times.tick, times.tick))
        if random.random() < 0.2:
            steps.append(Advance(random.randrange(5_000_000)))
    return tuple(steps)


def _event_mark(random: Random, producers: int, latest: int, tick: int) -> MarkStep:
    kind = random.choice(
        (FrameKind.JOIN, FrameKind.IDLE, FrameKind.IDLE, FrameKind.END, FrameKind.WATERMARK, FrameKind.CLOCK)
    )
    if kind is FrameKind.WATERMARK:
        return MarkStep(kind, 0, latest + random.randrange(-20, 10) * tick)
    return MarkStep(kind, random.randrange(producers))
