"""Network of the operators, queries and streams of a scenario."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from zlib import crc32

import numpy as np

from mavstream_server.scheduling.view import OperatorKind
from mavstream_server.simulation.model.arrivals import ArrivalTimes
from mavstream_server.simulation.model.joins import JoinOperator
from mavstream_server.simulation.model.operators import SimulatedOperator
from mavstream_server.simulation.model.queries import SimulatedQuery
from mavstream_server.simulation.model.sources import SourceOperator, VirtualClock
from mavstream_server.simulation.scenario import (
    READING,
    OperatorSpec,
    QuerySpec,
    ResponseFrom,
    Scenario,
    Service,
    StatisticsKind,
    answers_of,
)

ReaderList = list[tuple[SimulatedOperator, int]]


class SimulatedNetwork:
    """The streams, sources, operators and queries of a scenario, connected.

    Seeds are derived from names, so that a stream has the same arrivals and an operator drops the same
    tuples regardless of the rest of the scenario and of the policy.
    """

    def __init__(self, scenario: Scenario, seed: int, service: Service, clock: VirtualClock) -> None:
        self._scenario, self._seed, self._clock = scenario, seed, clock
        self._numbers = count(1)
        self._per_query = service is Service.PER_CLASS
        self._sizes = {spec.name: spec.size for spec in scenario.streams}
        self.readers: dict[str, ReaderList] = {spec.name: [] for spec in scenario.streams}
        """The leaves that read each stream, and the answers of each query."""
        self.sources: list[SourceOperator] = []
        self.queries: dict[str, SimulatedQuery] = {}
        for spec in scenario.queries:
            self.queries[spec.id] = self._query(spec)
        for id_, query in self.queries.items():
            query.tasks[-1].readers = tuple(self.readers[answers_of(id_)])
        self.arrivals: list[ArrivalTimes] = []
        if not self._per_query:
            self.arrivals = [ArrivalTimes(spec, self._seeded(spec.name)) for spec in scenario.streams]
            if service is not Service.DIRECT:
                self._shared_sources()
        if scenario.statistics is StatisticsKind.DECLARED:
            for operator in [*self.operators, *self.sources]:
                operator.use_true_statistics()
        for query in self.queries.values():
            query.arrange()

    @property
    def operators(self) -> Iterator[SimulatedOperator]:
        """All operators except sources."""
        for query in self.queries.values():
            yield from query.tasks

    def _seeded(self, name: str) -> np.random.SeedSequence:
        return np.random.SeedSequence((self._seed, crc32(name.encode())))

    def _query(self, spec: QuerySpec) -> SimulatedQuery:
        of_class = self._scenario.latencies.get(spec.class_name)
        target = of_class if spec.latency_target is None else spec.latency_target
        query = SimulatedQuery(spec.id, spec.class_name, target)
        made: dict[str, SimulatedOperator] = {}
        read: dict[str, ReaderList] = {}
        numbers = [next(self._numbers) for _ in spec.operators]
        if self._per_query:
            inputs = {name for part in spec.operators for name in part.inputs}
            sources = [stream for stream in self._scenario.streams if stream.name in inputs]
            numbers = [*(next(self._numbers) for _ in sources), *numbers]
            numbers.sort()
        for number, part in zip(numbers[-len(spec.operators) :], spec.operators, strict=True):
            made[part.name] = operator = self._operator(number, part, query)
            for port, name in enumerate(part.inputs):
                read.setdefault(name, []).append((operator, port))
                if name not in made:
                    operator.streams += 1
                    operator.leaf = True
            operator.size_in = self._size_in(part, made)
            if operator.leaf:
                streams_read = [self._sizes[name] for name in part.inputs if name not in made]
                operator.set_input_size(sum(streams_read) / len(streams_read))
        for name, operator in made.items():
            operator.connect(tuple(read.get(name, ())))
        query.tasks = list(made.values())
        answers = answers_of(spec.id)
        self.readers[answers], self._sizes[answers] = [], query.tasks[-1].spec.size
        streams = {name: readers for name, readers in read.items() if name not in made}
        for name, readers in streams.items():
            self.readers[name] += readers
        if self._per_query:
            for number, stream in zip(numbers, sources, strict=False):
                arrivals = ArrivalTimes(stream, self._seeded(stream.name))
                query.sources.append(self._source(number, arrivals, query, streams[stream.name]))
        return query

    def _operator(self, number: int, part: OperatorSpec, query: SimulatedQuery) -> SimulatedOperator:
        kind = OperatorKind.OUTPUT if part.kind == "output" else OperatorKind.OPERATIONAL
        if part.kind == READING and self._per_query:
            kind = OperatorKind.SOURCE
        sides = part.kind == "join" and len(part.inputs) == 2 and (part.synchronised or part.window != 0)
        made = JoinOperator if sides else SimulatedOperator
        return made(number, part, query, kind, self._seeded(f"{query.id}/{part.name}"))

    def _size_in(self, part: OperatorSpec, made: dict[str, SimulatedOperator]) -> float:
        sizes = [made[name].spec.size if name in made else self._sizes[name] for name in part.inputs]
        return sum(sizes) / len(sizes)

    def _shared_sources(self) -> None:
        unowned = SimulatedQuery("", "")
        for arrivals in self.arrivals:
            self._source(next(self._numbers), arrivals, unowned, self.readers[arrivals.name])

    def _source(
        self, number: int, arrivals: ArrivalTimes, query: SimulatedQuery, readers: ReaderList
    ) -> SourceOperator:
        restamp = self._scenario.response_from is ResponseFrom.SOURCE_READ
        source = SourceOperator(number, arrivals, query, self._scenario.sources, self._clock, restamp)
        source.connect(tuple(readers))
        self.sources.append(source)
        return source
