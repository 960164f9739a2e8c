"""An engine over one stream and plans with common prefixes, for tests of sharing."""

from __future__ import annotations

from typing import Any

from tests.conftest import MakeStream

from mavstream_server.engine.engine import Engine
from mavstream_server.engine.query import RunningQuery
from mavstream_server.engine.sharing.shared_pipeline import SharedPipeline
from mavstream_server.testing import ManualClock, PlanRun, ScriptedStream, run_plan

SOURCE = {"op": "source", "stream": "readings"}
SECOND = {"kind": "tumbling", "size": "1s"}
US = 1_000_000


def hot(where: str = "x >= 10", *, node: str = "hot", compute: str = "x + 1") -> dict[str, Any]:
    """Return a select and a project above it; the name of the select does not matter."""
    return {
        "in": SOURCE,
        node: {"op": "select", "input": "in", "where": where},
        "out": {"op": "project", "input": node, "compute": {"y": compute}},
    }


def counts(window: dict[str, Any] | None = None, keep: str = "n > 0") -> dict[str, Any]:
    aggregate = {"op": "aggregate", "input": "in", "window": window or SECOND, "compute": {"n": "count(*)"}}
    return {"in": SOURCE, "n": aggregate, "out": {"op": "select", "input": "n", "where": keep}}


class Bench:
    """An engine over one stream, and queries on it."""

    def __init__(self, readings: ScriptedStream, clock: ManualClock, **options: Any) -> None:
        self.readings = readings
        self.clock = clock
        self.ended: list[str] = []
        """The ids of the queries that have ended."""
        self.engine = Engine(clock, **{"train": 8, "ended": self._note_ended, **options})
        self.engine.attach(readings.name, readings.reader)

    def _note_ended(self, query: RunningQuery) -> None:
        self.ended.append(query.id)

    def start(self, id_: str, nodes: dict[str, Any], **request: Any) -> PlanRun:
        return run_plan(nodes, "out", [self.readings], engine=self.engine, id_=id_, **request)

    def feed(self, *values: int, frame: int | None = None) -> None:
        """Write rows a millisecond apart and run the engine."""
        self.readings.rows(*[(value * 1000, value) for value in values], frame=frame)
        self.settle()

    def settle(self) -> None:
        """Run the engine until it is idle, long enough for queries to attach to shared pipelines."""
        for _ in range(3):
            self.engine.run()
            self.clock.advance(seconds=2)
        self.engine.run()

    @property
    def pipelines(self) -> list[SharedPipeline]:
        return list(self.engine.sharing.pipelines)

    def pipeline(self) -> SharedPipeline:
        (pipeline,) = self.pipelines
        return pipeline


def readings_of(stream: MakeStream) -> ScriptedStream:
    return stream("readings", "ts timestamp, x int", event_time="ts")


def shares(*runs: PlanRun) -> bool:
    return all(run.query.shared for run in runs)
