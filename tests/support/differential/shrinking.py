"""Shrinking: the smallest part of a failing case that still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.support.differential.cases import Case
from tests.support.differential.plans import reachable
from tests.support.differential.scripts import Rows, Step, StreamScript

Fails = Callable[[Case], bool]


def shrunk(case: Case, fails: Fails, budget: int = 400) -> Case:
    """Return a smaller case that also fails: a lower root, fewer steps and rows, within a number of tries."""
    left = budget
    found = True
    while found and left > 0:
        found = False
        for smaller in _smaller(case):
            left -= 1
            if fails(smaller):
                case, found = smaller, True
                break
            if left <= 0:
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """Yield smaller cases, the largest cuts first."""
    for name, node in case.nodes.items():
        if name != case.root and node["op"] not in ("source", "split"):
            yield _with_root(case, name)
    for index, script in enumerate(case.scripts):
        for steps in _fewer_steps(script):
            scripts = list(case.scripts)
            scripts[index] = replace(script, steps=steps)
            yield replace(case, scripts=tuple(scripts))


def _with_root(case: Case, root: str) -> Case:
    nodes = reachable(case.nodes, root)
    used = {node["stream"] for node in nodes.values() if node["op"] == "source"}
    return replace(case, nodes=nodes, root=root, scripts=tuple(s for s in case.scripts if s.name in used))


def _fewer_steps(script: StreamScript) -> Iterator[tuple[Step, ...]]:
    steps = script.steps
    size = len(steps) // 2
    while size:
        for start in range(0, len(steps), size):
            yield steps[:start] + steps[start + size :]
        size //= 2
    for index, step in enumerate(steps):
        if isinstance(step, Rows) and len(step.rows) > 1:
            half = len(step.rows) // 2
            for rows in (step.rows[:half], step.rows[half:]):
                yield (*steps[:index], replace(step, rows=rows), *steps[index + 1 :])
