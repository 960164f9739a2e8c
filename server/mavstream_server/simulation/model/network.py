"""The network: operators, queries and streams that a scenario asks for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from zlib import crc32

import numpy as np

from mavstream_server.scheduling.view import OperatorKind
from mavstream_server.simulation.model.arrivals import Feed
from mavstream_server.simulation.model.joins import JoinOperator
from mavstream_server.simulation.model.operators import SimulatedOperator
from mavstream_server.simulation.model.queries import SimulatedQuery
from mavstream_server.simulation.model.sources import Clock, SourceOperator
from mavstream_server.simulation.scenario import (
    Figures,
    OperatorPlan,
    QueryPlan,
    ResponseFrom,
    Scenario,
    Service,
)

ReaderList = list[tuple[SimulatedOperator, int]]


class Network:
    """Everything that a scenario speaks of, connected.

    Seeds are taken from names, so that a stream brings the same tuples and an operator drops the same ones
    whatever else there is, and whoever decides.
    """

    def __init__(self, scenario: Scenario, seed: int, service: Service, clock: Clock) -> None:
        self._scenario, self._seed, self._clock = scenario, seed, clock
        self._numbers = count(1)
        self._per_query = service is Service.PER_CLASS
        self._sizes = {plan.name: plan.size for plan in scenario.streams}
        self.readers: dict[str, ReaderList] = {plan.name: [] for plan in scenario.streams}
        self.sources: list[SourceOperator] = []
        self.queries = {plan.id: self._query(plan) for plan in scenario.queries}
        self.feeds: list[Feed] = []
        if not self._per_query:
            self.feeds = [Feed(plan, self._seeded(plan.name)) for plan in scenario.streams]
            if service is not Service.DIRECT:
                self._shared_sources()
        if scenario.figures is Figures.DECLARED:
            for operator in [*self.operators, *self.sources]:
                operator.declare()
        for query in self.queries.values():
            query.arrange()

    @property
    def operators(self) -> Iterator[SimulatedOperator]:
        """All but the sources."""
        for query in self.queries.values():
            yield from query.tasks

    def _seeded(self, name: str) -> np.random.SeedSequence:
        return np.random.SeedSequence((self._seed, crc32(name.encode())))

    def _query(self, plan: QueryPlan) -> SimulatedQuery:
        query = SimulatedQuery(plan.id, plan.class_name)
        made: dict[str, SimulatedOperator] = {}
        read: dict[str, ReaderList] = {}
        numbers = [next(self._numbers) for _ in plan.operators]
        if self._per_query:
            inputs = {name for part in plan.operators for name in part.inputs}
            sources = [stream for stream in self._scenario.streams if stream.name in inputs]
            numbers = [*(next(self._numbers) for _ in sources), *numbers]
            numbers.sort()
        for number, part in zip(numbers[-len(plan.operators) :], plan.operators, strict=True):
            made[part.name] = operator = self._operator(number, part, query)
            for port, name in enumerate(part.inputs):
                read.setdefault(name, []).append((operator, port))
                if name not in made:
                    operator.streams += 1
                    operator.leaf = True
            operator.size_in = self._size_in(part, made)
        for name, operator in made.items():
            operator.connect(tuple(read.get(name, ())))
        query.tasks = list(made.values())
        streams = {name: readers for name, readers in read.items() if name not in made}
        for name, readers in streams.items():
            self.readers[name] += readers
        if self._per_query:
            for number, stream in zip(numbers, sources, strict=False):
                feed = Feed(stream, self._seeded(stream.name))
                query.sources.append(self._source(number, feed, query, streams[stream.name]))
        return query

    def _operator(self, number: int, part: OperatorPlan, query: SimulatedQuery) -> SimulatedOperator:
        kind = OperatorKind.OUTPUT if part.kind == "output" else OperatorKind.OPERATIONAL
        sides = part.kind == "join" and len(part.inputs) == 2 and (part.synchronised or part.window != 0)
        made = JoinOperator if sides else SimulatedOperator
        return made(number, part, query, kind, self._seeded(f"{query.id}/{part.name}"))

    def _size_in(self, part: OperatorPlan, made: dict[str, SimulatedOperator]) -> float:
        sizes = [made[name].plan.size if name in made else self._sizes[name] for name in part.inputs]
        return sum(sizes) / len(sizes)

    def _shared_sources(self) -> None:
        nobody = SimulatedQuery("", "")
        for feed in self.feeds:
            self._source(next(self._numbers), feed, nobody, self.readers[feed.name])

    def _source(self, number: int, feed: Feed, query: SimulatedQuery, readers: ReaderList) -> SourceOperator:
        restamp = self._scenario.response_from is ResponseFrom.SOURCE_READ
        source = SourceOperator(number, feed, query, self._scenario.sources, self._clock, restamp)
        source.connect(tuple(readers))
        self.sources.append(source)
        return source
