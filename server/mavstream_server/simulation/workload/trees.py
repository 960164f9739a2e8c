"""Query trees of the PRB paper: a number of levels, a number of children, and a few expensive operators."""

from __future__ import annotations

from mavstream_server.simulation.scenario import MICROSECOND, OperatorPlan
from mavstream_server.simulation.workload.draws import drawn
from mavstream_server.simulation.workload.query_model import TreePart


def tree(part: TreePart, id_: str, seed: int, setup_us: float) -> tuple[OperatorPlan, ...]:
    """Return the operators of a tree, bottom-up; the root, at depth 0, is the output.

    The root's cost is not stated in the paper, so that it is not drawn, but given.
    """
    plans = []
    for depth in range(part.depth, -1, -1):
        for place in range(part.fan_out**depth):
            children = range(place * part.fan_out, (place + 1) * part.fan_out)
            leaf = depth == part.depth
            plans.append(
                OperatorPlan(
                    name=_name(depth, place),
                    kind="output" if depth == 0 else "select" if leaf else "union",
                    inputs=(f"{id_}.s{place}",) if leaf else tuple(_name(depth + 1, one) for one in children),
                    cost=_cost(part, seed, depth, place) * MICROSECOND,
                    setup=setup_us * MICROSECOND,
                    selectivity=1.0 if depth == 0 else _selectivity(part, seed, depth, place),
                    random=True,
                )
            )
    return tuple(plans)


def _name(depth: int, place: int) -> str:
    return f"o{depth}_{place}"


def _cost(part: TreePart, seed: int, depth: int, place: int) -> float:
    expensive = part.expensive
    if expensive is not None and depth == expensive.depth and place < expensive.count:
        return expensive.cost_us
    if depth == 0:
        return part.root_cost_us
    return drawn(part.cost_us, seed, f"tree/cost/{depth}", place)


def _selectivity(part: TreePart, seed: int, depth: int, place: int) -> float:
    return drawn(part.selectivity, seed, f"tree/selectivity/{depth}", place)
