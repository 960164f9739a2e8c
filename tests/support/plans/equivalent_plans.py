"""Plans that give the same answer, for tests of migration."""

from __future__ import annotations

from tests.conftest import MakeStream
from tests.support.plans.rewriting_steps import IN, Nodes, select

from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.engine.query import MigrationStage, RunningQuery
from mavstream_server.testing import ScriptedStream

SECOND = 1_000_000
FIELDS = "ts timestamp, home int, x int"


def counting(input_: str, window: Nodes | None = None) -> Nodes:
    window = window or {"kind": "tumbling", "size": "10s"}
    compute = {"n": "count(*)", "total": "sum(x)"}
    return {"op": "aggregate", "input": input_, "by": ["home"], "window": window, "compute": compute}


EVEN_THEN_SMALL = {**IN, "even": select("in", "x % 2 = 0"), "small": select("even", "x < 500")}
SMALL_THEN_EVEN = {**IN, "small": select("in", "x < 500"), "even": select("small", "x % 2 = 0")}
PROJECT_BELOW = {
    **IN,
    "p": {"op": "project", "input": "in", "compute": {"home": "home", "x": "x"}},
    "s": select("p", "x % 2 = 0"),
}
SELECT_BELOW = {
    **IN,
    "s": select("in", "x % 2 = 0"),
    "p": {"op": "project", "input": "s", "compute": {"home": "home", "x": "x"}},
}
COUNTED, COUNTED_TOO = {**PROJECT_BELOW, "a": counting("s")}, {**SELECT_BELOW, "a": counting("p")}


def readings_of(stream: MakeStream) -> ScriptedStream:
    return stream("readings", FIELDS, event_time="ts")


def typed(nodes: Nodes, root: str, *streams: ScriptedStream) -> TypedPlan:
    plan = Plan.parse({"root": root, "nodes": nodes})
    return infer(plan, {stream.name: stream.shape for stream in streams})


def rows(start: int, count: int, step: int = SECOND) -> list[tuple[int, int, int]]:
    """Return readings of three homes in turn, a second apart."""
    return [(n * step, n % 3, n) for n in range(start, start + count)]


def stage(query: RunningQuery) -> MigrationStage | None:
    return query.migrations.stage
