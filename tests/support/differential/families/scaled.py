"""Cases whose root is a scaled aggregate: random plans, cut off above an aggregate that can be scaled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from tests.support.differential.cases import Case, random_case

from mavstream_protocol.errors import InvalidPlan

_BETWEEN = frozenset(("source", "select", "project", "split", "union"))


def scaled_cases(first_seed: int) -> Iterator[Case]:
    """Yield cases without end."""
    for seed in count(first_seed):
        case = random_case(f"{seed}.scaled")
        for name, node in case.nodes.items():
            below = [each for each in _needed(case.nodes, name) if each != name]
            # Most have nothing between the stream and the aggregate: keep only a few of them.
            if node["op"] == "aggregate" and (len(below) > 1 or seed % 4 == 0):
                scaled = _scaled(case, name, below)
                if scaled is not None:
                    yield scaled
                    break


def _scaled(case: Case, name: str, below: list[str]) -> Case | None:
    nodes = case.nodes
    if any(nodes[each]["op"] not in _BETWEEN for each in below) or not isinstance(
        nodes[name]["window"].get("size"), str
    ):
        return None
    used = {nodes[each]["stream"] for each in below if nodes[each]["op"] == "source"}
    scripts = tuple(script for script in case.scripts if script.name in used)
    try:
        given = case.typed().nodes[nodes[name]["input"].partition(".")[0]].schema
        numbers = [field.name for field in given if field.type.numeric][:2]
        compute = {"n": "count(*)"}
        compute |= {f"n_{field.name}": f'count("{field.name}")' for field in list(given)[:2]}
        compute |= {f"sum_{column}": f'sum("{column}")' for column in numbers}
        compute |= {f"avg_{column}": f'avg("{column}")' for column in numbers}
        kept = {each: nodes[each] for each in below}
        kept[name] = {**nodes[name], "compute": compute, "scaled": True}
        made = replace(case, scripts=scripts, nodes=kept, root=name)
        made.typed()
    except InvalidPlan:
        return None
    return made


def _needed(nodes: Mapping[str, Any], root: str) -> list[str]:
    """Return a node and all that it reads, in the order of the plan."""
    needed, waiting = {root}, [root]
    while waiting:
        node = nodes[waiting.pop()]
        read = [*node.get("inputs", ()), *(node[key] for key in ("input", "left", "right") if key in node)]
        found = {reference.partition(".")[0] for reference in read} - needed
        needed |= found
        waiting += found
    return [name for name in nodes if name in needed]
