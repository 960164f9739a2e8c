"""Declared statistics: the assumed cost and selectivity of an operator until they are measured."""

from __future__ import annotations

from mavstream_protocol.typed_plan import TypedPlan
from mavstream_server.scheduling.statistics import Statistics

_DEFAULT = Statistics()


def declared(plan: TypedPlan, name: str) -> Statistics:
    """Return the initial statistics of a node's operator: the node's hints, else defaults.

    The input size is the mean of the sizes that the nodes below declare.
    """
    node = plan.nodes.get(name)
    if node is None:  # the output
        return _DEFAULT
    sizes = [_sized(plan, reference.node) for reference in node.inputs]
    entering = sum(sizes) / len(sizes) if sizes else _DEFAULT.input_size
    hints = node.hints
    if hints is None:
        return _DEFAULT._replace(input_size=entering)
    return _DEFAULT._replace(
        cost_per_tuple=_DEFAULT.cost_per_tuple if hints.cost is None else float(hints.cost),
        selectivity=_DEFAULT.selectivity if hints.selectivity is None else hints.selectivity,
        tuple_size=_sized(plan, name),
        input_size=entering,
    )


def _sized(plan: TypedPlan, name: str) -> float:
    hints = plan.nodes[name].hints
    return _DEFAULT.tuple_size if hints is None or hints.size is None else float(hints.size)
