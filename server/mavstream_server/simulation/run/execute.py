"""Execution of a scenario under a policy, and collection of its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import perf_counter, process_time
from typing import Any

import numpy as np

from mavstream_server.simulation.report.convergence import ConvergenceWatch
from mavstream_server.simulation.report.metrics import response_metrics
from mavstream_server.simulation.report.result import Answers, Counts, QueueSamples, Result
from mavstream_server.simulation.run.cores import Core
from mavstream_server.simulation.run.driver import Driver, RunDigest
from mavstream_server.simulation.run.intake import DirectIntake, OwnCoreIntake
from mavstream_server.simulation.scenario import SECOND, Accounting, Scenario


def run(
    scenario: Scenario,
    policy: str,
    options: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    warm_up_s: float = 0.0,
    digest: bool = False,
) -> Result:
    """Run a scenario to its end; answers to tuples that arrived during the warm-up are not counted."""
    recorded = RunDigest() if digest else None
    driver = Driver(scenario, policy, options, seed, recorded)
    watch = ConvergenceWatch(driver.policy, driver.clock)
    begin, cpu_begin = perf_counter(), process_time()
    driver.run()
    wall, cpu = perf_counter() - begin, process_time() - cpu_begin
    counts = _counts(driver)
    queries = _answers(driver, int(warm_up_s * SECOND), _added(scenario, counts))
    classes = {
        name: _joined(queries[spec.id] for spec in scenario.queries if spec.class_name == name)
        for name in sorted(scenario.priorities, key=lambda name: (-scenario.priorities[name], name))
    }
    elapsed = max(driver.clock.now, 1)
    intake = driver.intake
    source_busy = sum(core.busy for core in intake.cores) if isinstance(intake, OwnCoreIntake) else None
    return Result(
        workload=scenario.name,
        policy=policy,
        options=dict(options or {}),
        seed=seed,
        cores=scenario.cores,
        sources=driver.service.value,
        classes={
            name: response_metrics(scenario.priorities[name], one.responses) for name, one in classes.items()
        },
        seconds=driver.clock.now / SECOND,
        utilisation=sum(_busy(core, driver.clock.now) for core in driver.cores) / elapsed / scenario.cores,
        source_utilisation=None
        if source_busy is None
        else source_busy / elapsed / max(scenario.sources.cores, 1),
        tuple_steps=counts.consumed + sum(source.consumed for source in driver.network.sources),
        wall_s=wall,
        cpu_s=cpu,
        counts=counts,
        queues=_samples(driver),
        convergence=watch.found,
        answers=classes,
        queries=queries,
        priorities=tuple(driver.timetable.priorities),
        latency_targets={
            id_: query.latency_target
            for id_, query in driver.network.queries.items()
            if query.latency_target is not None
        },
        digest=None if recorded is None else recorded.digest,
    )


def _counts(driver: Driver) -> Counts:
    operators, sources, intake = list(driver.network.operators), driver.network.sources, driver.intake
    cores = [*driver.cores, *(intake.cores if isinstance(intake, OwnCoreIntake) else ())]
    if isinstance(intake, DirectIntake):
        tuples, arrived = intake.delivered, intake.delivered_to_readers
    else:
        tuples = sum(source.consumed for source in sources)
        arrived = sum(source.consumed * len(source.readers) for source in sources)
    inner = [operator for operator in operators if operator.record is None]
    arrived += sum(one.consumed * len(one.readers) for one in operators if one.record is not None)
    return Counts(
        tuples=tuples,
        arrived=arrived,
        consumed=sum(operator.consumed for operator in operators),
        dropped=sum(operator.consumed - operator.produced * len(operator.readers) for operator in inner),
        queued=sum(operator.queued for operator in operators),
        in_flight=sum(_in_flight(core) for core in cores)
        + (intake.in_flight if isinstance(intake, OwnCoreIntake) else 0),
        answers=sum(operator.consumed for operator in operators if operator.record is not None),
        slices=driver.slices,
        calls=driver.runner.calls,
        switches=sum(core.switches for core in cores),
        empty_visits=sum(core.empty_visits for core in cores),
        preemptions=driver.preemptions,
        cuts=driver.runner.cuts,
        consultations=driver.consultations,
    )


def _busy(core: Core, now: int) -> int:
    under_way = core.slice is not None or bool(core.source_outbox)
    return core.busy + (now - core.begin if under_way else 0)


def _in_flight(core: Core) -> int:
    later = sum(len(readers) * len(batch) for readers, batch in core.outbox)
    return later + sum(len(source.readers) * len(batch) for source, batch in core.source_outbox)


def _added(scenario: Scenario, counts: Counts) -> int:
    """Return the time that counted overheads add to every response time: their sum, divided by the tuples."""
    overheads = scenario.overheads
    if overheads.accounting is Accounting.CONSUMED or not counts.tuples:
        return 0
    total = (
        overheads.context_switch * counts.switches
        + overheads.empty_visit * counts.empty_visits
        + overheads.decision * counts.slices
        + overheads.transition * counts.transitions
    )
    return total // counts.tuples


def _answers(driver: Driver, since: int, added: int) -> dict[str, Answers]:
    found = {}
    for id_, query in driver.network.queries.items():
        departures, responses = query.record.times()
        # A slice is computed when it starts: answers after the end of the run are left out.
        kept = (departures - responses >= since) & (departures <= driver.clock.now)
        found[id_] = Answers(departures[kept], responses[kept] + added)
    return found


def _joined(parts: Iterable[Answers]) -> Answers:
    known = list(parts)
    if not known:
        return Answers(np.zeros(0, np.int64), np.zeros(0, np.int64))
    departures, responses = ([getattr(one, name) for one in known] for name in ("departures", "responses"))
    return Answers(np.concatenate(departures), np.concatenate(responses))


def _samples(driver: Driver) -> QueueSamples:
    at, tuples, size = np.array(driver.timetable.samples, np.int64).reshape(-1, 3).T
    return QueueSamples(at, tuples, size)
