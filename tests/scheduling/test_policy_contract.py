"""The contract that every scheduling policy keeps: in scripted networks, and in the engine."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from tests.conftest import MakeStream

from mavstream_server.engine.engine import Engine
from mavstream_server.scheduling.policy import Level, SourceService
from mavstream_server.scheduling.registry import POLICIES
from mavstream_server.testing import ManualClock, PlanRun, ScriptedNetwork, ScriptedStream, Step, run_plan

CHAIN = (Step("select", 0.5, 200), Step("aggregate", 1.0, 300), Step("project", 1.0, 50))
TREE = {
    "left": Step("select", 0.5, 100),
    "right": Step("select", 1.0, 150),
    "both": Step("join", 1.0, 900, ("left", "right")),
    "kept": Step("select", 0.5, 80, ("both",)),
}
CLASSES = ("high", "middle", "low")
INNER = [name for name, policy in sorted(POLICIES.items()) if policy.level is Level.OPERATOR]
COMPOSED: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in sorted(POLICIES)),
    *((outer, {"inner": {"policy": name}}) for outer in ("abd", "cqc") for name in INNER),
    ("rr", {"unit": "query"}),
    ("rr", {"tuples": 3}),
    ("deadline", {"unit": "operator"}),
    ("deadline", {"turn_us": 1, "patience_us": 5, "default_target_ms": 0.001}),
]

every_policy = pytest.mark.parametrize("policy", sorted(POLICIES))
every_composition = pytest.mark.parametrize(
    ("policy", "options"), COMPOSED, ids=[f"{name}-{options}" for name, options in COMPOSED]
)


class World:
    """A network whose queries are added, removed and moved at random; counts the tuples that arrived."""

    def __init__(self, policy: str, options: dict[str, Any], seed: int, cores: int) -> None:
        self.network = ScriptedNetwork(policy, options, seed)
        self.random = Random(seed)
        self.cores = cores
        self.busy: set[int] = set()
        self.arrived: Counter[str] = Counter()
        self._named = 0
        self.pipeline_of: dict[str, str] = {}
        """Shared pipelines by their members."""
        for index, name in enumerate(CLASSES):
            self.network.set_priority(name, 6 - 2 * index)

    def happen(self) -> None:
        """Make a random change."""
        network, random, ids = self.network, self.random, list(self.network.queries)
        lot = random.random()
        if not ids or (lot < 0.02 and len(ids) < 12):
            self._add()
        elif lot < 0.03:
            self._remove(random.choice(ids))
        elif lot < 0.05:
            network.reclass(random.choice(ids), random.choice(CLASSES))
        elif lot < 0.06:
            network.set_priority(random.choice(CLASSES), random.randint(1, 9))
        elif lot < 0.07:
            network.weigh(random.choice(ids), random.choice((1, 1, 2, 4)))
        elif lot < 0.08:
            network.retarget(random.choice(ids), random.choice((None, 1_000, 1_000_000)))
        elif lot < 0.3:
            id_ = random.choice(ids)
            id_ = self.pipeline_of.get(id_, id_)
            for leaf in range(len(network.queries[id_].leaves)):
                network.arrive(id_, 2, leaf)
            self.arrived[id_] += 2
        else:
            self.work()

    def _add(self) -> None:
        """Add a query, or a shared pipeline with two members."""
        network, random = self.network, self.random
        self._named += 1
        id_, class_name, shape = f"q{self._named}", random.choice(CLASSES), random.choice((CHAIN, TREE, None))
        if shape is not None:
            network.add(id_, shape, class_name)
            return
        network.add_shared(id_, CHAIN[:1], [CHAIN[1:]] * 2, class_name)
        self.pipeline_of |= {f"{id_}/{number}": id_ for number in range(2)}

    def _remove(self, id_: str) -> None:
        """Remove a query; a shared pipeline with its members."""
        network = self.network
        going = [*(member for member, pipeline in self.pipeline_of.items() if pipeline == id_), id_]
        for gone in going:
            if (pipeline := self.pipeline_of.pop(gone, None)) is not None:
                network.detach(pipeline, network.queries[gone])
            network.remove(gone)
            del network.answers[gone]

    def expected(self, id_: str) -> int | None:
        """Return the number of answers of a query, or None for a shared pipeline, which gives none.

        Each shape halves what arrives at a leaf, once per leaf of a chain and once more above a join.
        """
        if id_ in self.pipeline_of:
            return self.arrived[self.pipeline_of[id_]] // 2
        query, tuples = self.network.queries[id_], self.arrived[id_]
        if query.operators[-1].operator == "fan_out":
            return None
        return tuples // 2 if len(query.leaves) == 1 else int((tuples // 2 + tuples) * 0.5)

    def work(self) -> None:
        """Begin or end a slice on a core; with one core both."""
        core = self.random.randrange(self.cores)
        if core in self.busy:
            self.busy.discard(core)
            self.network.end(core)
        elif self.network.begin(core) is not None:
            self.busy.add(core)
            if self.cores == 1:
                self.work()
        else:
            waiting = [
                operator.number
                for query in self.network.queries.values()
                for operator in query.operators
                if operator.waiting and not operator.running
            ]
            assert self.busy or not waiting, f"idle while operators {waiting} were ready"

    def finish(self) -> None:
        """Run slices until no tuples wait."""
        for core in tuple(self.busy):
            self.network.end(core)
        self.busy.clear()
        self.network.run()
        assert self.network.waiting == 0


@every_composition
@pytest.mark.parametrize("cores", [1, 3])
def test_no_tuple_is_lost_under_random_changes(policy: str, options: dict[str, Any], cores: int) -> None:
    world = World(policy, options, seed=19, cores=cores)
    for _ in range(1500):
        world.happen()
    world.finish()
    for id_ in world.network.queries:
        expected = world.expected(id_)
        assert expected is None or abs(world.network.answers[id_] - expected) <= 1, id_
    assert any(id_ in world.pipeline_of for id_ in world.network.queries)


@every_composition
def test_one_seed_gives_one_sequence_of_decisions(
    policy: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def decisions() -> list[tuple[int, ...]]:
        world = World(policy, options, seed=5, cores=1)
        made: list[tuple[int, ...]] = []
        begin = world.network.begin

        def noted(core: int = 0) -> object:
            slice_ = begin(core)
            made.append(() if slice_ is None else tuple(one.number for one in slice_.operators))
            return slice_

        monkeypatch.setattr(world.network, "begin", noted)
        for _ in range(300):
            world.happen()
        return made

    assert decisions() == decisions()


# In the engine, with real tuples

NODES = {
    "in": {"op": "source", "stream": "readings"},
    "doors": {"op": "source", "stream": "doors"},
    "hot": {"op": "select", "input": "in", "where": "x % 3 <> 0"},
    "pairs": {
        "op": "join",
        "left": "hot",
        "right": "doors",
        "on": [["home", "home"]],
        "within": "5ms",
        "compute": {"home": "l.home", "x": "l.x", "y": "r.y"},
    },
    "sums": {
        "op": "aggregate",
        "input": "pairs",
        "by": ["home"],
        "window": {"kind": "tumbling", "size": "20ms"},
        "compute": {"n": "count(*)", "x": "sum(x)", "y": "sum(y)"},
    },
}
FIELDS = "ts timestamp, home int, {0} int"


@pytest.fixture
def streams(stream: MakeStream) -> list[ScriptedStream]:
    return [
        stream("readings", FIELDS.format("x"), event_time="ts"),
        stream("doors", FIELDS.format("y"), event_time="ts"),
    ]


def put_rows(streams: list[ScriptedStream], begin: int, count: int) -> None:
    rows = [(1000 * number, number % 3, number) for number in range(begin, begin + count)]
    for each in streams:
        each.rows(*rows, frame=7)


def expected_rows(streams: list[ScriptedStream]) -> list[tuple[object, ...]]:
    return sorted(run_plan(NODES, "sums", streams).rows())


@every_composition
@pytest.mark.parametrize("sources", list(SourceService))
def test_the_answer_does_not_depend_on_the_policy(
    policy: str, options: dict[str, Any], sources: SourceService, streams: list[ScriptedStream]
) -> None:
    engine = Engine(ManualClock(), policy, options, sources=sources, train=16, queue_limit=64)
    for each in streams:
        engine.attach(each.name, each.reader)
    runs = [
        run_plan(NODES, "sums", streams, engine=engine, id_=f"q{number}", class_name=CLASSES[number % 2])
        for number in range(3)
    ]
    put_rows(streams, 0, 40)
    engine.run()
    assert [bool(run.query.shared) for run in runs] == [True, False, True]
    for begin in range(40, 120, 40):
        put_rows(streams, begin, 40)
        engine.run(5)
    engine.run()
    expected = expected_rows(streams)
    assert expected
    for run in runs:
        assert sorted(run.answers()) == expected


def test_ten_thousand_policy_switches_under_load_lose_and_repeat_nothing(
    streams: list[ScriptedStream],
) -> None:
    random = Random(3)
    engine = Engine(ManualClock(), train=16, queue_limit=64)
    for each in streams:
        engine.attach(each.name, each.reader)

    def start(number: int) -> PlanRun:
        class_name = CLASSES[number % 2]  # two of them share their common prefix
        return run_plan(NODES, "sums", streams, engine=engine, id_=f"q{number}", class_name=class_name)

    runs, rows = [start(number) for number in range(3)], 0
    for switches in range(10_000):
        policy, options = random.choice(COMPOSED)
        engine.switch(policy, options, random.choice((None, *SourceService)))
        if switches % 25 == 0:
            put_rows(streams, rows, 5)
            rows += 5
        if switches % 50 == 0:
            engine.changes.reclass(random.choice(runs).query.id, random.choice(CLASSES))
            engine.set_class(random.choice(CLASSES), random.randint(1, 9))
        engine.run(random.randint(0, 3))
    engine.run()
    expected = expected_rows(streams)
    assert len(expected) > 100
    for run in runs:
        assert sorted(run.answers()) == expected
