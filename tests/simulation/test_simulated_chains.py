"""Queries that read the answers of others in the simulator: the same tuples as the composed plan."""

from __future__ import annotations

from typing import Any

import pytest
from tests.simulation.test_simulator import conserved
from tests.support.simulation.scenarios import (
    US,
    departures_us,
    direct,
    output,
    query,
    recorded,
    responses_us,
    select,
)

from mavstream_server.scheduling.registry import POLICIES
from mavstream_server.simulation import simulate
from mavstream_server.simulation.report.result import Result
from mavstream_server.simulation.run.execute import run
from mavstream_server.simulation.scenario import OperatorSpec, answers_of
from mavstream_server.simulation.workload.demand import utilisation
from mavstream_server.simulation.workload.errors import InvalidWorkload
from mavstream_server.simulation.workload.expansion import expand
from mavstream_server.simulation.workload.export import workload_of
from mavstream_server.simulation.workload.model import Workload

HOT: dict[str, Any] = {"kind": "select", "input": "s", "cost_us": 20, "selectivity": 0.25}
FEW: dict[str, Any] = {"kind": "select", "cost_us": 40, "selectivity": 0.5}
COMPOSED = [{"id": "whole", "class": "c", "operators": {"hot": HOT, "few": {**FEW, "input": "hot"}}}]
CHAIN = [
    {"id": "below", "class": "c", "operators": {"hot": HOT}},
    {
        "id": "above",
        "class": "c",
        "operators": {
            "in": {"kind": "results", "input": "query:below", "cost_us": 0.1},
            "few": {**FEW, "input": "in"},
        },
    },
]


def workload(queries: list[dict[str, Any]], **more: Any) -> Workload:
    return Workload.model_validate(
        {
            "name": "chain",
            "seconds": 4,
            "classes": {"c": {"priority": 1}},
            "streams": {"s": {"rate": 10_000}},
            "queries": queries,
            **more,
        }
    )


def mean_us(result: Result, id_: str) -> float:
    return float(result.queries[id_].responses.mean()) / US


def test_answers_are_read_when_they_are_given_and_keep_their_arrival() -> None:
    below = query("below", select("hot", "s", 10), output("hot"))
    reading = OperatorSpec("in", "results", (answers_of("below"),), 0)
    above = query("above", reading, select("few", "in", 5), output("few"))
    result = run(direct(below, above, streams=(recorded("s", 0, 100),)), "fifo")
    assert departures_us(result, "below") == [10, 110]
    assert departures_us(result, "above") == [15, 115]
    assert responses_us(result, "above") == [15, 15]
    assert conserved(result)


@pytest.mark.parametrize("service", ["per_class", "between_slices"])
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_chain_answers_as_much_and_as_soon_as_the_composed_plan(policy: str, service: str) -> None:
    sources = {"service": service, "cost_us": 1}
    whole = simulate(workload(COMPOSED, sources=sources, seconds=0.25), policy)
    chain = simulate(workload(CHAIN, sources=sources, seconds=0.25), policy)
    assert conserved(chain)
    # The rate into the query above is the one out of the query below.
    below, above = (len(chain.queries[id_].responses) for id_ in ("below", "above"))
    assert below == pytest.approx(625, rel=0.12)
    assert above == pytest.approx(len(whole.queries["whole"].responses), rel=0.12)
    assert mean_us(chain, "above") > mean_us(chain, "below")


def test_the_time_to_an_answer_is_that_of_the_composed_plan() -> None:
    whole = simulate(workload(COMPOSED, sources={"cost_us": 1}), "cqc")
    chain = simulate(workload(CHAIN, sources={"cost_us": 1}), "cqc")
    assert chain.utilisation == pytest.approx(whole.utilisation, rel=0.02)
    assert mean_us(chain, "above") == pytest.approx(mean_us(whole, "whole"), rel=0.1)


def test_the_work_of_a_chain_counts_for_its_utilisation() -> None:
    # 10,000 tuples of 20 us, 2,500 of 40 us and of 0.1 us.
    assert utilisation(expand(workload(CHAIN))) == pytest.approx(0.2 + 0.1 + 0.00025)
    scaled = expand(workload(CHAIN, utilisation=0.5))
    assert utilisation(scaled) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"queries": list(reversed(CHAIN))}, "must come before it"),
        (
            {"queries": [CHAIN[0], {**CHAIN[1], "operators": {"few": {**FEW, "input": "query:below"}}}]},
            "expected an operator of kind 'results' to read a query, got 'select'",
        ),
        (
            {
                "classes": {"c": {"priority": 1}, "d": {"priority": 1}},
                "queries": [CHAIN[0], {**CHAIN[1], "class": "d"}],
                "only": ["d"],
            },
            "query 'above' reads 'query:below', whose class is left out",
        ),
    ],
)
def test_what_cannot_be_a_chain_is_refused(changed: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidWorkload, match=complaint):
        expand(workload(**{"queries": CHAIN, **changed}))


def operator(name: str, kind: str, cost: float, selectivity: float = 1.0) -> dict[str, Any]:
    return {
        "name": name,
        "operator": kind,
        "cost_per_tuple_us": cost,
        "selectivity": selectivity,
        "tuples": 1000,
    }


def placed(id_: str, reads: str, where: str, selectivity: float, below: str | None = None) -> dict[str, Any]:
    return {
        "query": id_,
        "class": "default",
        "operators": [
            operator("in", "source", 0.5),
            operator(where, "select", 20.0, selectivity),
            operator("#output", "output", 1.0),
        ],
        "edges": [
            {"from": reads, "to": "in"},
            {"from": "in", "to": where},
            {"from": where, "to": "#output"},
        ],
        "reads": {} if below is None else {reads.removeprefix("query:"): below},
    }


def test_the_workload_of_a_server_keeps_its_chains() -> None:
    exported = workload_of(
        "here",
        {},
        {"s": 2000.0},
        [
            placed("above-1", "query:hot", "few", 0.5, "below-1"),
            placed("ended-1", "query:gone", "few", 0.5, "gone-1"),
            placed("below-1", "stream:s", "hot", 0.25),
        ],
        {"policy": "cqc", "options": {}},
    )
    ids = [one.id for one in exported.queries]
    assert ids.index("below-1") < ids.index("above-1")
    assert {name: part.rate for name, part in exported.streams.items()} == {"gone": 0, "s": 2000}
    result = simulate(exported, "cqc", seconds=2)
    answers = {id_: len(one.responses) for id_, one in result.queries.items()}
    assert answers["below-1"] == pytest.approx(1000, rel=0.1)
    assert answers["above-1"] == pytest.approx(500, rel=0.15)
    assert answers["ended-1"] == 0
    assert conserved(result)
