"""The operator graph as SVG: streams at the left, the answer at the right, numbers on nodes and edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mavstream_page.components.html import Markup, h

_NODE_W, _NODE_H, _GAP_X, _GAP_Y, _PAD = 212, 94, 84, 20, 10


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of the graph."""

    name: str
    kind: str
    """Its operator, `stream` or `table`."""
    title: str
    detail: str = ""
    lines: tuple[str, ...] = ()
    load: str = ""
    """`calm`, `busy` or `behind`, by the rows that wait for it; nothing if it is not known."""
    badge: str = ""


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """Rows flow along it."""

    from_: str
    to: str
    label: str = ""


_LOADS = {"calm": "● calm", "busy": "◐ rows wait", "behind": "▲ behind"}


def graph(nodes: Sequence[GraphNode], edges: Sequence[GraphEdge], label: str) -> Markup:
    """Return a picture of a plan, in layers from its streams to its answer."""
    known = {node.name: node for node in nodes}
    edges = [edge for edge in edges if edge.from_ in known and edge.to in known]
    layers = layers_of(known, edges)
    columns: dict[int, list[str]] = {}
    for name in in_order(known, edges, layers):
        columns.setdefault(layers[name], []).append(name)
    tallest = max((len(column) for column in columns.values()), default=0)
    places: dict[str, tuple[float, float]] = {}
    for layer, column in columns.items():
        top = _PAD + (tallest - len(column)) * (_NODE_H + _GAP_Y) / 2
        for row, name in enumerate(column):
            places[name] = (_PAD + layer * (_NODE_W + _GAP_X), top + row * (_NODE_H + _GAP_Y))
    width = 2 * _PAD + len(columns) * (_NODE_W + _GAP_X) - _GAP_X
    height = 2 * _PAD + tallest * (_NODE_H + _GAP_Y) - _GAP_Y
    drawn = [_edge(edge, places) for edge in edges] + [
        _node(known[name], *place) for name, place in places.items()
    ]
    arrow = h(
        "defs",
        h(
            "marker",
            h("path", d="M0 0L8 4L0 8z", class_="arrow"),
            id="arrow",
            viewBox="0 0 8 8",
            refX=8,
            refY=4,
            markerWidth=7,
            markerHeight=7,
            orient="auto-start-reverse",
        ),
    )
    picture = h(
        "svg",
        arrow,
        drawn,
        viewBox=f"0 0 {width} {height}",
        style=f"min-width:{width * 0.72:.0f}px;max-width:{width}px",
        role="img",
        aria_label=label,
        class_="graph",
    )
    return h("div", picture, class_="graph-box", tabindex="0", role="region", aria_label=label)


def layers_of(nodes: Mapping[str, object], edges: Sequence[GraphEdge]) -> dict[str, int]:
    """Return the layer of each node: behind all those that it reads."""
    inputs: dict[str, list[str]] = {name: [] for name in nodes}
    for edge in edges:
        inputs[edge.to].append(edge.from_)
    layers: dict[str, int] = {}

    def layer(name: str, above: frozenset[str]) -> int:
        if name not in layers:
            below = [layer(each, above | {name}) for each in inputs[name] if each not in above]
            layers[name] = max(below, default=-1) + 1
        return layers[name]

    for name in nodes:
        layer(name, frozenset())
    return layers


def in_order(nodes: Mapping[str, object], edges: Sequence[GraphEdge], layers: Mapping[str, int]) -> list[str]:
    """Return names layer by layer, each near the mean place of its inputs, so that few edges cross."""
    place: dict[str, float] = {}
    for index, name in enumerate(sorted(nodes, key=lambda each: layers[each])):
        below = [place[edge.from_] for edge in edges if edge.to == name and edge.from_ in place]
        place[name] = sum(below) / len(below) if below else float(index)
    return sorted(nodes, key=lambda each: (layers[each], place[each]))


def _edge(edge: GraphEdge, places: Mapping[str, tuple[float, float]]) -> Markup:
    (x1, y1), (x2, y2) = places[edge.from_], places[edge.to]
    x1, y1, y2 = x1 + _NODE_W, y1 + _NODE_H / 2, y2 + _NODE_H / 2
    bend = max(24.0, (x2 - x1) / 2)
    path = h(
        "path",
        d=f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2 - 2} {y2}",
        class_="edge",
        marker_end="url(#arrow)",
    )
    text = h(
        "text",
        edge.label,
        x=f"{(x1 + x2) / 2:.0f}",
        y=f"{(y1 + y2) / 2 - 7:.0f}",
        text_anchor="middle",
        class_="edge-label",
    )
    return h("g", path, text if edge.label else None)


def _node(node: GraphNode, x: float, y: float) -> Markup:
    classes = f"node {node.kind} {node.load}"
    parts: list[Markup] = [
        h("rect", x=0, y=0, width=_NODE_W, height=_NODE_H, rx=8, class_="box"),
        h("rect", x=0, y=0, width=5, height=_NODE_H, rx=2.5, class_="side"),
        h("text", _cut(node.title, 20), x=14, y=19, class_="node-title"),
        h("text", _cut(node.detail, 34), x=14, y=35, class_="node-detail"),
    ]
    for index, line in enumerate(node.lines[:3]):
        parts.append(h("text", line, x=14, y=52 + 14 * index, class_="node-line"))
    if node.load:
        parts.append(h("text", _LOADS[node.load], x=_NODE_W - 8, y=19, text_anchor="end", class_="node-load"))
    if node.badge:
        parts.append(
            h("text", node.badge, x=_NODE_W - 8, y=_NODE_H - 6, text_anchor="end", class_="node-badge")
        )
    title = h("title", " · ".join(filter(None, (node.title, node.detail, *node.lines, node.badge))))
    return h(
        "g", title, parts, transform=f"translate({x:.0f} {y:.0f})", class_=classes, data_key=f"n-{node.name}"
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
