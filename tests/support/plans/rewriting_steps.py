"""Single steps of rewriting, for tests of one rule."""

from __future__ import annotations

from typing import Any

from tests.support.plans.sample_plans import STREAMS as SAMPLE_STREAMS

from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.queries import OnError
from mavstream_protocol.typed_plan import StreamShape
from mavstream_server.planning.rewriting.costing.metrics import PlanMetrics
from mavstream_server.planning.rewriting.costing.model import CostModel
from mavstream_server.planning.rewriting.rule import RewriteRule
from mavstream_server.planning.rewriting.subject import Subject, Surroundings
from mavstream_server.testing.streams import parse_fields

Nodes = dict[str, Any]

STREAMS = {
    **SAMPLE_STREAMS,
    "meters": StreamShape(parse_fields("ts timestamp, home int, power float, unit string"), "ts"),
}
TABLES = {"homes": parse_fields("home int, owner string, floor int null")}

IN = {"in": {"op": "source", "stream": "readings"}}
DOORS = {"doors": {"op": "source", "stream": "doors"}}
METERS = {"meters": {"op": "source", "stream": "meters"}}
SECOND = {"kind": "tumbling", "size": "1s"}


def select(input_: str, where: str) -> Nodes:
    return {"op": "select", "input": input_, "where": where}


def project(input_: str, **compute: str) -> Nodes:
    return {"op": "project", "input": input_, "compute": compute}


def plan_of(nodes: Nodes, root: str) -> Plan:
    return Plan.parse({"root": root, "nodes": nodes})


def as_nodes(plan: Plan) -> Nodes:
    """Return the nodes of a plan as JSON, without default values."""
    dumped: Nodes = plan.model_dump(mode="json", exclude_defaults=True)["nodes"]
    return dumped


def steps_of(
    rule: RewriteRule,
    nodes: Nodes,
    root: str,
    *,
    on_error: OnError = OnError.NULL,
    one_time: bool = False,
    metrics: PlanMetrics | None = None,
) -> list[Plan]:
    """Return every plan that one application of a rule gives; each must give the same columns."""
    surroundings = Surroundings(STREAMS, TABLES, on_error, one_time)
    plan = plan_of(nodes, root)
    typed = surroundings.types(plan)
    model = CostModel(typed, metrics or PlanMetrics())
    made = [step.plan for step in rule.rewrites(Subject(plan, typed, surroundings, model.ranks(typed)))]
    for step in made:
        assert surroundings.types(step).schema == typed.schema
    return made


def step_of(rule: RewriteRule, nodes: Nodes, root: str, **given: Any) -> tuple[str, Nodes]:
    """Return the root and the nodes of the only plan that a rule gives."""
    (made,) = steps_of(rule, nodes, root, **given)
    return made.root, as_nodes(made)
