"""Random plans with common prefixes, whose queries start and stop while rows arrive."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.support.differential.engine_runs import CHOICES, SMALL_SEGMENTS, TRAINS
from tests.support.differential.plans import Made, Nodes, PlanWriter, reachable
from tests.support.differential.scripts import Row, StreamScript, random_script, random_times

from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.queries import OnError
from mavstream_protocol.scheduling import Sharing
from mavstream_protocol.schema import Schema
from mavstream_protocol.typed_plan import StreamShape, TypedPlan
from mavstream_server.engine.engine import Engine
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.query_request import QueryRequest
from mavstream_server.engine.sinks import MemorySink
from mavstream_server.engine.states import QueryState
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.testing import ManualClock
from mavstream_server.testing.plans import to_rows

CLASSES = ("high", "low")
_WRITTEN = object()


class PrefixWriter(PlanWriter):
    """Writes a chain above a source, and plans that begin with a prefix of it."""

    def chain(self, length: int) -> None:
        """Make the chain; plans follow."""
        made = self._random.choice(self._pool)
        self._links = [made]
        for _ in range(length):
            windowed = self._random.choice((self._aggregate, self._aggregate, self._distinct))
            make = self._random.choice((self._select, self._select, self._project, None))
            made = make(made) if make is not None else self._by_time(windowed, made)
            self._links.append(made)
        self._pool += self._links[1:]

    def plan(self, number: int) -> tuple[Nodes, str]:
        """Return a plan above a prefix of the chain, with its own names."""
        made = self._random.choice((*self._links[1:], self._links[-1]))
        kinds = (self._select, self._project, self._aggregate, self._union, self._window_join, self._split)
        pool = list(self._pool)
        for _ in range(self._random.choice((0, 1, 1, 2, 3))):
            made = self._random.choice(kinds)(made)
            self._pool.append(made)
        self._pool = pool
        return _renamed(reachable(self.nodes, made.ref), made.ref, f"q{number}_")

    def _by_time(self, windowed: Callable[[Made], Made], below: Made) -> Made:
        while True:
            made = windowed(below)
            if isinstance(self.nodes[made.ref]["window"].get("size"), str):
                return made


def _renamed(nodes: Nodes, root: str, prefix: str) -> tuple[Nodes, str]:
    def new(value: Any) -> Any:
        return [prefix + ref for ref in value] if isinstance(value, list) else prefix + value

    readers = ("input", "inputs", "left", "right")
    renamed = {
        prefix + name: {key: new(value) if key in readers else value for key, value in node.items()}
        for name, node in nodes.items()
    }
    return renamed, prefix + root


@dataclass(frozen=True, slots=True)
class World:
    """Streams, and plans over them."""

    seed: int
    scripts: tuple[StreamScript, ...]
    plans: tuple[TypedPlan, ...]
    written: tuple[tuple[Nodes, str], ...]
    on_error: OnError

    def description(self) -> str:
        """Describe the world."""
        return "\n".join([f"seed {self.seed}, on_error {self.on_error}", *map(repr, self.written)])


def random_world(seed: int) -> World:
    """Make streams, and plans most of which have a common prefix."""
    random = Random(seed)
    times = random_times(random)
    scripts = tuple(random_script(random, f"s{i}", times) for i in range(random.choice((1, 1, 2))))
    writer = PrefixWriter(random, scripts, times)
    writer.chain(random.choice((1, 1, 2, 3)))
    written = tuple(writer.plan(number) for number in range(random.choice((2, 3, 5))))
    shapes = {s.name: StreamShape(Schema(s.fields), s.event_time) for s in scripts}
    plans = tuple(infer(Plan.parse({"root": root, "nodes": nodes}), shapes) for nodes, root in written)
    return World(seed, scripts, plans, written, random.choice((OnError.NULL, OnError.NULL, OnError.SKIP)))


@dataclass(slots=True)
class Outcome:
    """The queries of a run, in the order in which they started."""

    queries: list[RunningQuery] = field(default_factory=list)
    sinks: list[MemorySink] = field(default_factory=list)
    plans: list[TypedPlan] = field(default_factory=list)
    shared: int = 0
    """How often a query was found on a pipeline."""

    def answers(self, number: int) -> list[Row]:
        """Return the answers of a query."""
        schema = self.plans[number].schema
        return [row for batch in self.sinks[number].batches for row in to_rows(batch, schema)]

    def metrics(self, number: int) -> tuple[QueryState, int, dict[str, dict[str, int]]]:
        """Return the metrics of a query that depend only on its plan and the streams.

        The rows read when a window's `until` ends a query depend on the schedule.
        """
        query = self.queries[number]
        if "until=" in repr(query.request.plan).replace("until=None", ""):
            return query.state, 0, {}
        counted = {name: {why: n for why, n in of.items() if n} for name, of in query.counters.items()}
        return query.state, query.rows_in, {name: of for name, of in counted.items() if of}


class Course:
    """A run of a world. Events are drawn from a seed alone, so they do not depend on sharing."""

    def __init__(self, world: World, seed: int, sharing: Sharing) -> None:
        self._world = world
        self._random = Random(seed)
        self._clock = ManualClock()
        policy, options = self._random.choice(CHOICES)
        train, room = self._random.choice(TRAINS), self._random.choice((None, 40))
        self._engine = Engine(self._clock, policy, options, train=train, queue_limit=room, sharing=sharing)
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Start and stop queries while the streams are written, then run all to their ends."""
        random, engine = self._random, self._engine
        with tempfile.TemporaryDirectory() as directory, ExitStack() as open_streams:
            options = random.choice((None, SMALL_SEGMENTS))
            writers = [script.open(Path(directory), options) for script in self._world.scripts]
            for writer in writers:
                open_streams.callback(writer.stream.close)
                engine.attach(writer.stream.name, writer.stream.reader)
            self._start()
            self._start()
            waiting: list[Iterator[None]] = [writer.steps(random) for writer in writers]
            while waiting:
                writing = random.choice(waiting)
                if next(writing, _WRITTEN) is _WRITTEN:
                    waiting.remove(writing)
                self._random_event()
            for query in self._outcome.queries:
                if query.state is QueryState.PAUSED:
                    engine.stop(query.id)
            engine.run()
        return self._outcome

    def _random_event(self) -> None:
        random, engine = self._random, self._engine
        steps, lot = random.choice((0, 0, 1, 2, 5, 40)), random.random()
        engine.run(steps)
        self._outcome.shared += sum(bool(query.shared) for query in self._outcome.queries)
        if random.random() < 0.5:
            self._clock.advance(nanoseconds=random.choice((1_000_000, 6_000_000, 2_000_000_000)))
        if lot < 0.12:
            self._start()
        elif lot < 0.15:
            engine.switch(*random.choice(CHOICES))
        elif lot < 0.3:
            index = random.randrange(100)
            active = [query for query in self._outcome.queries if query.active]
            if lot < 0.2:
                # The rows that a query has read by now depend on the policy: let it read all rows.
                engine.run()
                active = [query for query in active if query.active]
            if active:
                self._change(active[index % len(active)], lot)

    def _change(self, query: RunningQuery, lot: float) -> None:
        engine = self._engine
        if lot < 0.165:
            engine.stop(query.id)
        elif lot < 0.2:
            if query.state is QueryState.PAUSED:
                engine.resume(query.id)
            else:
                engine.pause(query.id)
        elif lot < 0.25:
            engine.changes.reclass(query.id, CLASSES[query.class_name == CLASSES[0]])
        else:
            engine.snapshot(query.id)

    def _start(self) -> None:
        random, outcome = self._random, self._outcome
        plan = random.choice(self._world.plans)
        outcome.plans.append(plan)
        outcome.sinks.append(MemorySink())
        request = QueryRequest(
            f"q{len(outcome.plans)}",
            plan,
            random.choice((CLASSES[0], CLASSES[0], CLASSES[1])),
            RunOptions(self._world.on_error),
            earliest=random.random() < 0.3,
            memory_limit=random.choice((None, 1 << 30)),
        )
        outcome.queries.append(self._engine.start(request, outcome.sinks[-1]))
