"""Frontiers: how far in time each node of a plan has answered, and which rows later answers need.

Times are microseconds since 1970. A node has answered all windows that end at or before the lowest watermark
of its inputs, its frontier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mavstream_protocol.plans.windows import TimeWindow
from mavstream_protocol.typed_plan import TypedNode, TypedPlan

BEGIN_OF_TIME = -(1 << 63)
END_OF_TIME = (1 << 63) - 1


def first_end(window: TimeWindow, time: int) -> int:
    """Return the end of the first window that ends after a time."""
    if time == END_OF_TIME:
        return END_OF_TIME
    origin, step, size = window.begin or 0, window.step, window.size
    number = 0 if time == BEGIN_OF_TIME else (time - origin - size) // step + 1
    if window.begin is not None:
        number = max(number, 0)
    elif time == BEGIN_OF_TIME:
        return BEGIN_OF_TIME
    return origin + number * step + size


def start_behind(window: TimeWindow, time: int) -> int:
    """Return the start of the first window that begins after a time."""
    origin, step = window.begin or 0, window.step
    number = (time - origin) // step + 1
    if window.begin is not None:
        number = max(number, 0)
    return origin + number * step


@dataclass(frozen=True, slots=True)
class Frontiers:
    """The frontiers of a plan at given watermarks of its streams."""

    reached: Mapping[str, int]
    """By node: the lowest watermark of its inputs; for a source that of its stream."""

    @classmethod
    def at(cls, plan: TypedPlan, watermarks: Mapping[str, int]) -> Frontiers:
        """Return the frontiers at watermarks by stream; a stream without one has not begun."""
        reached = {node.name: watermarks.get(node.stream, BEGIN_OF_TIME) for node in plan.sources}
        given = dict(reached)
        """By node: the time from which its later answers are."""
        for node in plan.nodes.values():
            if node.inputs:
                reached[node.name] = min(given[one.node] for one in node.inputs)
                given[node.name] = _given(node, reached[node.name])
        return cls(reached)

    def closes(self, node: TypedNode, before: Frontiers) -> bool:
        """Return whether a node answers windows on the way from the frontiers before to these."""
        window = window_of(node)
        return window is not None and first_end(window, before.reached[node.name]) <= self.reached[node.name]


def window_of(node: TypedNode) -> TimeWindow | None:
    """Return the window by time at whose end a node answers; None for nodes that answer row by row."""
    window = node.windowed_by
    assert window is None or isinstance(window, TimeWindow), f"node {node.name} has another kind of window"
    return window


def _given(node: TypedNode, reached: int) -> int:
    window = window_of(node)
    if window is None or reached in (BEGIN_OF_TIME, END_OF_TIME):
        return reached
    end = first_end(window, reached)
    return end - window.size if node.keeps_times else end - 1


def needed_times(plan: TypedPlan, frontiers: Frontiers) -> dict[str, int | None]:
    """Return, by node, the time from which answers behind the frontiers need its rows.

    None stands for new rows alone.
    """
    needed: dict[str, int | None] = {plan.root.node: None}
    for node in reversed(list(plan.nodes.values())):
        if node.name not in needed:
            continue
        below = _needed_below(node, frontiers.reached.get(node.name, BEGIN_OF_TIME), needed[node.name])
        for one in node.inputs:
            known = needed.get(one.node)
            needed[one.node] = below if known is None else known if below is None else min(known, below)
    return needed


def lowest_end(window: TimeWindow, reached: int, needed: int | None) -> int:
    """Return the end of the first window that a node must answer completely.

    That is the first one behind its frontier, or the first with answers of the time that is needed.
    """
    end = first_end(window, reached)
    return end if needed is None else min(end, first_end(window, needed))


def _needed_below(node: TypedNode, reached: int, needed: int | None) -> int | None:
    window = window_of(node)
    if window is not None:
        end = lowest_end(window, reached, needed)
        return end if end in (BEGIN_OF_TIME, END_OF_TIME) else end - window.size
    if node.near is not None:
        time = reached if needed is None else min(reached, needed)
        reach = node.near.before + node.near.after
        return time if time in (BEGIN_OF_TIME, END_OF_TIME) else time - reach
    return needed


def gaps_of(plan: TypedPlan, gaps: Mapping[str, int]) -> dict[str, int]:
    """Return, by node, the time up to which rows of its inputs were not seen; given by stream."""
    found = {node.name: gaps[node.stream] for node in plan.sources if node.stream in gaps}
    passed = dict(found)
    for node in plan.nodes.values():
        below = [passed[one.node] for one in node.inputs if one.node in passed]
        if below:
            found[node.name] = max(below)
            passed[node.name] = _gap_above(node, max(below))
    return found


def _gap_above(node: TypedNode, gap: int) -> int:
    window = window_of(node)
    if window is not None:
        return start_behind(window, gap) - window.step + window.size - 1
    if node.near is not None:
        return gap + max(node.near.before, node.near.after)
    return gap
