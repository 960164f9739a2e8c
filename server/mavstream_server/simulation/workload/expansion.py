"""Expansion of a workload into a scenario."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import NoReturn

from mavstream_server.simulation.scenario import (
    MICROSECOND,
    SECOND,
    ArrivalKind,
    Burst,
    Change,
    Overheads,
    QuerySpec,
    Scenario,
    SourceSpec,
    StreamSpec,
    answers_of,
    read_query,
)
from mavstream_server.simulation.workload.demand import scale_costs, scale_rates
from mavstream_server.simulation.workload.errors import InvalidWorkload
from mavstream_server.simulation.workload.families import Families
from mavstream_server.simulation.workload.model import ChangePart, StreamPart, Workload


def expand(workload: Workload) -> Scenario:
    """Expand a workload, scaled to its utilisation; raises InvalidWorkload."""
    queries = tuple(Families(workload, _Sizes(workload)).queries())
    _check(workload, queries)
    scenario = Scenario(
        workload.name,
        priorities={name: part.priority for name, part in workload.classes.items()},
        latencies={
            name: int(part.latency_us * MICROSECOND)
            for name, part in workload.classes.items()
            if part.latency_us is not None
        },
        streams=tuple(_streams(workload, queries)),
        queries=queries,
        cores=workload.cores,
        sources=_sources(workload),
        overheads=_overheads(workload),
        changes=tuple(_changes(workload, queries)),
        seconds=workload.seconds,
        response_from=workload.response_from,
        statistics=workload.statistics,
        exact_quantum=workload.exact_quantum,
        sample_s=workload.sample_s,
    )
    wanted = workload.utilisation
    if wanted is not None and wanted.by == "rates":
        scenario = scale_rates(scenario, wanted.of)
    elif wanted is not None:
        scenario = scale_costs(scenario, wanted.of, wanted.at)
    return _reduced(workload, scenario) if workload.only else scenario


def _reduced(workload: Workload, scenario: Scenario) -> Scenario:
    """Return the scenario with only the queries of the classes in `only`."""
    for index, name in enumerate(workload.only):
        if name not in workload.classes:
            known = ", ".join(workload.classes)
            _refuse(workload, f"only/{index}", f"unknown class {name!r}; known are: {known}")
    queries = tuple(query for query in scenario.queries if query.class_name in workload.only)
    read = set(_stream_names(queries))
    there = {answers_of(query.id) for query in queries}
    for query in queries:
        for name in (one for part in query.operators for one in part.inputs if read_query(one) is not None):
            if name not in there:
                _refuse(workload, "only", f"query {query.id!r} reads {name!r}, whose class is left out")
    return replace(
        scenario,
        priorities={name: scenario.priorities[name] for name in workload.only},
        queries=queries,
        streams=tuple(stream for stream in scenario.streams if stream.name in read),
    )


class _Sizes(Mapping[str, float]):
    """Tuple sizes of streams in bytes, by stream name."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def __getitem__(self, name: str) -> float:
        return stream_part(self._workload, name).size

    def __iter__(self) -> Iterator[str]:
        return iter(self._workload.streams)

    def __len__(self) -> int:
        return len(self._workload.streams)


def stream_part(workload: Workload, name: str) -> StreamPart:
    """Return the definition of a stream: by its name, else by the longest pattern that matches."""
    streams = workload.streams
    if name in streams:
        return streams[name]
    fitting = [pattern for pattern in streams if fnmatchcase(name, pattern)]
    if not fitting:
        _refuse(workload, "streams", f"stream {name!r} is read by a query but not defined; define it here")
    return streams[max(fitting, key=len)]


def _check(workload: Workload, queries: tuple[QuerySpec, ...]) -> None:
    for index, part in enumerate(workload.queries):
        if part.class_ not in workload.classes:
            known = ", ".join(workload.classes)
            detail = f"unknown class {part.class_!r}; known are: {known}"
            _refuse(workload, f"queries/{index}/class", detail)
    twice = [id_ for id_, count in Counter(query.id for query in queries).items() if count > 1]
    if twice:
        _refuse(workload, "queries", f"expected unique ids, got twice: {', '.join(twice)}; set `id`")


def _streams(workload: Workload, queries: tuple[QuerySpec, ...]) -> Iterator[StreamSpec]:
    for name in _stream_names(queries):
        part = stream_part(workload, name)
        if part.tuples is None and workload.seconds is None and part.arrivals is not ArrivalKind.RECORDED:
            _refuse(
                workload,
                "seconds",
                f"stream {name!r} never ends: set its `tuples`, or `seconds` of the workload",
            )
        burst = part.burst
        changes = [one for one in workload.changes if one.stream and fnmatchcase(name, one.stream)]
        yield StreamSpec(
            name,
            rate=part.rate or 0.0,
            kind=part.arrivals,
            tuples=part.tuples,
            rates=tuple((one.at, one.rate or 0.0) for one in sorted(changes, key=lambda one: one.at)),
            burst=None if burst is None else Burst(burst.high_s, burst.low_s, burst.low_rate, burst.random),
            offsets=part.offsets_s,
            begin_s=part.begin_s,
            size=part.size,
        )


def _stream_names(queries: tuple[QuerySpec, ...]) -> list[str]:
    names: dict[str, None] = {}
    for query in queries:
        own = {operator.name for operator in query.operators}
        names |= dict.fromkeys(one for part in query.operators for one in part.inputs if one not in own)
    return [name for name in names if read_query(name) is None]


def _sources(workload: Workload) -> SourceSpec:
    part = workload.sources
    setup = workload.overheads.setup_us if part.setup_us is None else part.setup_us
    costs = part.cost_us * MICROSECOND, setup * MICROSECOND
    return SourceSpec(part.service, *costs, part.train, part.cores, part.order)


def _overheads(workload: Workload) -> Overheads:
    part = workload.overheads
    return Overheads(
        context_switch=int(part.context_switch_us * MICROSECOND),
        switch_point=part.switch,
        empty_visit=int(part.empty_visit_us * MICROSECOND),
        ring_visits=part.ring_visits,
        decision=int(part.decision_us * MICROSECOND),
        transition=int(part.transition_us * MICROSECOND),
        accounting=part.accounting,
        noise=part.noise,
    )


def _changes(workload: Workload, queries: tuple[QuerySpec, ...]) -> Iterator[Change]:
    """Return the changes for the timetable; changes of rates are part of the streams."""
    for index, part in enumerate(workload.changes):
        change = Change(int(part.at * SECOND))
        if part.priority is not None:
            names = [name for name in workload.classes if fnmatchcase(name, part.class_)]
            if not names:
                _refuse(workload, f"changes/{index}/class", f"no class matches {part.class_!r}")
            change = replace(change, priorities=dict.fromkeys(names, part.priority))
        if part.operator is not None:
            found = list(_meant(part, queries))
            if not found:
                _refuse(workload, f"changes/{index}/operator", f"no operator matches {part.operator!r}")
            if part.selectivity is not None:
                change = replace(change, selectivities=dict.fromkeys(found, part.selectivity))
            if part.cost_us is not None:
                change = replace(change, costs=dict.fromkeys(found, part.cost_us * MICROSECOND))
        if change.priorities or change.selectivities or change.costs:
            yield change


def _meant(part: ChangePart, queries: tuple[QuerySpec, ...]) -> Iterator[tuple[str, str]]:
    """Return the operators that a change applies to, as (query, operator)."""
    for query in queries:
        if fnmatchcase(query.class_name, part.class_) and fnmatchcase(query.id, part.query):
            for operator in query.operators:
                if part.operator in (operator.kind, operator.name):
                    yield query.id, operator.name


def _refuse(workload: Workload, path: str, detail: str) -> NoReturn:
    raise InvalidWorkload.at(workload.name, path, detail)
