"""The graph of a running query, with live numbers."""

from __future__ import annotations

from collections.abc import Mapping

from mavstream_page.components import numbers
from mavstream_page.components.graph import GraphEdge, GraphNode, graph
from mavstream_page.components.html import Markup
from mavstream_page.data.queries import QueryTopic
from mavstream_protocol.plans.plan import Node
from mavstream_protocol.wire.resources import OperatorInfo

_BEHIND_ROWS = 10_000
"""Rows in a queue from which an operator counts as behind."""
_ANSWER = "#output"


def live_graph(topic: QueryTopic) -> Markup:
    """Return the graph of a running query."""
    plan = topic.plan
    assert plan is not None
    shown = (plan.running or plan.plan).nodes
    operators = {each.name: each for each in plan.operators}
    nodes = [_outside(edge.from_, topic) for edge in plan.edges if ":" in edge.from_]
    fused = {name for path in plan.paths for name in path if len(path) > 1}
    for name, operator in operators.items():
        rate = topic.operators[name].last if name in topic.operators else None
        node = shown.get(name)
        nodes.append(
            GraphNode(
                name,
                "output" if name == _ANSWER else operator.operator,
                "answer" if name == _ANSWER else name,
                described(node) if node is not None else operator.operator,
                _lines(operator, rate),
                _load(operator),
                _badge(operator, name in fused),
            )
        )
    if not operators:
        nodes += [GraphNode(name, node.op, name, described(node)) for name, node in shown.items()]
    edges = [
        GraphEdge(edge.from_, edge.to, _edge_label(edge.from_, edge.to, topic, operators))
        for edge in plan.edges
    ]
    root = (plan.running or plan.plan).root
    if _ANSWER in operators and not any(edge.to == _ANSWER for edge in edges):
        edges.append(GraphEdge(root.partition(".")[0], _ANSWER, numbers.rate(topic.results.last)))
    return graph(list({node.name: node for node in nodes}.values()), edges, f"Operators of {topic.id}")


def described(node: Node) -> str:
    """Return what a node does, in a few words."""
    given = node.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    for field in ("where", "stream", "table"):
        if given.get(field):
            return f"{node.op} {given[field]}"
    window = given.get("window")
    if isinstance(window, dict):
        by = ", ".join(given.get("by", ())) or "all"
        return f"{node.op} {window.get('kind', '')} {window.get('size', '')} by {by}"
    if given.get("within"):
        within = given["within"]
        spans = [within] if isinstance(within, str) else dict.fromkeys(within.values())
        return f"{node.op} within {' / '.join(spans)}"
    if given.get("compute"):
        return f"{node.op} {', '.join(given['compute'])}"
    return node.op


def _outside(name: str, topic: QueryTopic) -> GraphNode:
    kind, _, title = name.partition(":")
    info = topic.streams.get(title)
    lines = (
        ()
        if info is None
        else (f"position {numbers.count(info.position)}", f"{numbers.size(info.bytes)} on disk")
    )
    return GraphNode(name, kind, title, kind, lines)


def _lines(operator: OperatorInfo, rate: float | None) -> tuple[str, ...]:
    flow = f"{numbers.rate(rate)} · {numbers.count(operator.queued)} queued"
    cost = f"{numbers.digits(operator.cost_per_tuple_us)} µs per row"
    if operator.operator in ("source", "output"):
        return flow, cost
    return flow, f"{cost} · keeps {numbers.percent(operator.selectivity)}"


def _load(operator: OperatorInfo) -> str:
    if operator.queued >= _BEHIND_ROWS:
        return "behind"
    return "busy" if operator.queued > 1000 else "calm"


def _badge(operator: OperatorInfo, fused: bool) -> str:
    if operator.sharers > 1:
        return f"≡ shared by {operator.sharers}"
    return "» fused" if fused and operator.operator not in ("source", "output") else ""


def _edge_label(from_: str, to: str, topic: QueryTopic, operators: Mapping[str, OperatorInfo]) -> str:
    rate = topic.operators.get(to)
    if rate is None or rate.last is None:
        return ""
    return numbers.rate(rate.last)
