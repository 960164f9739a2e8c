"""Query trees of the PRB paper: depth, fan-out and a few expensive operators."""

from __future__ import annotations

from mavstream_server.simulation.scenario import MICROSECOND, OperatorSpec
from mavstream_server.simulation.workload.draws import draw_value
from mavstream_server.simulation.workload.query_model import TreePart


def tree(part: TreePart, id_: str, seed: int, setup_us: float) -> tuple[OperatorSpec, ...]:
    """Return the operators of a tree, bottom-up; the root, at depth 0, is the output.

    The root's cost is not stated in the paper, so it is a parameter and not drawn.
    """
    specs = []
    for depth in range(part.depth, -1, -1):
        for index in range(part.fan_out**depth):
            children = range(index * part.fan_out, (index + 1) * part.fan_out)
            leaf = depth == part.depth
            specs.append(
                OperatorSpec(
                    name=_name(depth, index),
                    kind="output" if depth == 0 else "select" if leaf else "union",
                    inputs=(f"{id_}.s{index}",) if leaf else tuple(_name(depth + 1, one) for one in children),
                    cost=_cost(part, seed, depth, index) * MICROSECOND,
                    setup=setup_us * MICROSECOND,
                    selectivity=1.0 if depth == 0 else _selectivity(part, seed, depth, index),
                    random=True,
                )
            )
    return tuple(specs)


def _name(depth: int, index: int) -> str:
    return f"o{depth}_{index}"


def _cost(part: TreePart, seed: int, depth: int, index: int) -> float:
    expensive = part.expensive
    if expensive is not None and depth == expensive.depth and index < expensive.count:
        return expensive.cost_us
    if depth == 0:
        return part.root_cost_us
    return draw_value(part.cost_us, seed, f"tree/cost/{depth}", index)


def _selectivity(part: TreePart, seed: int, depth: int, index: int) -> float:
    return draw_value(part.selectivity, seed, f"tree/selectivity/{depth}", index)
