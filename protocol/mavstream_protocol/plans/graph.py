"""Structure checks of a plan: edges, bottom-up order, unknown inputs, cycles and unused nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from mavstream_protocol.errors import InvalidPlan, ProblemItem
from mavstream_protocol.names import closest
from mavstream_protocol.plans.budget import MAX_PROBLEMS
from mavstream_protocol.plans.plan import InputRef, Plan


def bottom_up(plan: Plan) -> tuple[str, ...]:
    """Return the names of the nodes, each after the nodes that it reads.

    Raises InvalidPlan if the graph is invalid: unknown inputs, cycles, unused nodes, several roots.
    """
    problems = list(islice(_reference_problems(plan), MAX_PROBLEMS))
    if problems:
        raise InvalidPlan(problems)
    order = _depth_first(plan)
    problems = list(islice(_use_problems(plan, frozenset(order)), MAX_PROBLEMS))
    if problems:
        raise InvalidPlan(problems)
    return order


def readers(plan: Plan) -> dict[InputRef, list[str]]:
    """Return the nodes that read each output."""
    found: dict[InputRef, list[str]] = {}
    for name in plan.nodes:
        for reference in plan.inputs(name).values():
            found.setdefault(reference, []).append(name)
    return found


def unknown(kind: str, name: str, known: list[str]) -> str:
    """Return the error text for an unknown name, with a suggestion or the known names."""
    near = closest(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(sorted(known)) or 'none'}"
    return f"unknown {kind} {name!r}; {hint}"


def _reference_problems(plan: Plan) -> Iterator[ProblemItem]:
    pointed = [("root", InputRef.parse(plan.root))]
    for name in plan.nodes:
        pointed += [(f"nodes/{name}/{field}", ref) for field, ref in plan.inputs(name).items()]
    for pointer, reference in pointed:
        detail = _reference_problem(plan, reference)
        if detail is not None:
            yield ProblemItem(pointer=pointer, code="unknown_node", detail=detail)


def _reference_problem(plan: Plan, reference: InputRef) -> str | None:
    node = plan.nodes.get(reference.node)
    if node is None:
        return unknown("node", reference.node, list(plan.nodes))
    outputs = node.output_names
    if outputs is not None:
        if reference.output is None:
            example = f"{reference.node}.{outputs[0]}"
            return f"{reference.node!r} is a split: name one of its outputs, for example {example!r}"
        if reference.output not in outputs:
            return unknown(f"output of the split {reference.node!r}", reference.output, list(outputs))
    elif reference.output is not None:
        return f"{reference.node!r} is a {node.op} and has one output; write {reference.node!r}"
    return None


def _depth_first(plan: Plan) -> tuple[str, ...]:
    """Order the nodes that the root needs; an iterative walk, since plans may be deep."""
    order: dict[str, None] = {}
    path: dict[str, None] = {}  # from the root to the current node
    stack: list[tuple[str, bool]] = [(InputRef.parse(plan.root).node, False)]
    while stack:
        name, done = stack.pop()
        if done:
            path.popitem()
            order[name] = None
        elif name in path:
            above = list(path)
            cycle = " -> ".join([*above[above.index(name) :], name])
            detail = (
                f"the nodes read each other in a circle: {cycle}; a plan must lead from sources to its root"
            )
            raise InvalidPlan([ProblemItem(pointer=f"nodes/{name}", code="cycle", detail=detail)])
        elif name not in order:
            path[name] = None
            stack.append((name, True))
            stack += [(ref.node, False) for ref in reversed(plan.inputs(name).values())]
    return tuple(order)


def _use_problems(plan: Plan, used: frozenset[str]) -> Iterator[ProblemItem]:
    below = {name: {reference.node for reference in plan.inputs(name).values()} for name in plan.nodes}
    read = set[str]().union(*below.values())
    for name in plan.nodes:
        if name in used:
            continue
        if name in read:
            detail = f"node {name!r} does not lead to the root {plan.root!r}; connect it or leave it out"
            code = "unused_node"
            if _in_cycle(below, name):
                detail = f"node {name!r} is part of a circle apart from the root; break the circle"
                code = "cycle"
        else:
            detail = f"nobody reads node {name!r}, and the root is {plan.root!r}: a plan has one root"
            code = "two_roots"
        yield ProblemItem(pointer=f"nodes/{name}", code=code, detail=detail)
    root = InputRef.parse(plan.root)
    if root in (reading := readers(plan)):
        reader = reading[root][0]
        detail = f"the root {plan.root!r} is read by node {reader!r}; the root must be the last node"
        yield ProblemItem(pointer="root", code="root_is_read", detail=detail)


def _in_cycle(below: Mapping[str, set[str]], name: str) -> bool:
    seen: set[str] = set()
    stack = [name]
    while stack:
        reached = below[stack.pop()] - seen
        if name in reached:
            return True
        seen |= reached
        stack += reached
    return False
