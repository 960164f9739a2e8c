"""The canvas: the operators of a draft as a graph that is edited with mouse, finger or keyboard.

It is laid out anew with each change: nothing to tidy, and a query written as SQL has a picture, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import events
from nicegui.element import Element

from mavstream_page.components.graph import GraphEdge, in_order, layers_of
from mavstream_page.composer.draft import Draft
from mavstream_page.composer.editing import edges, takes_input
from mavstream_page.composer.operators import Operator

Act = Callable[[dict[str, Any]], Awaitable[None]]


class Canvas(Element, component="canvas.js"):
    """A graph of operators in the browser; edits are sent as actions."""

    def __init__(self, act: Act) -> None:
        super().__init__()
        self._props |= {"nodes": [], "edges": [], "selected": "", "focus": {"to": "", "count": 0}}

        async def acted(event: events.GenericEventArguments) -> None:
            if isinstance(event.args, dict):
                await act(event.args)

        self.on("action", acted)

    def show(self, draft: Draft, selected: str) -> None:
        """Show the operators of a draft."""
        made = {
            "nodes": nodes_of(draft),
            "edges": [
                {"from": from_.partition(".")[0], "output": from_.partition(".")[2], "to": to, "field": field}
                for from_, to, field in edges(draft.operators)
            ],
            "selected": selected,
        }
        if any(self._props[name] != value for name, value in made.items()):
            self._props |= made
            self.update()

    def focus(self, to: str) -> None:
        """Move the focus to the selected `node`, or to its `form`."""
        self._props["focus"] = {"to": to, "count": self._props["focus"]["count"] + 1}
        self.update()


def nodes_of(draft: Draft) -> list[dict[str, Any]]:
    """Return the operators with their place: the layer from the top, and the place in the layer."""
    drawn = [GraphEdge(from_.partition(".")[0], to) for from_, to, _ in edges(draft.operators)]
    layers = layers_of(draft.operators, drawn)
    filled: dict[int, int] = {}
    nodes = []
    for name in in_order(draft.operators, drawn, layers):
        operator, layer = draft.operators[name], layers[name]
        row = filled[layer] = filled.get(layer, -1) + 1
        nodes.append(
            {
                "name": name,
                "op": operator.op,
                "detail": described(operator),
                "columns": [f"{each.name} {each.type.value}" for each in draft.reading.schemas.get(name, ())],
                "errors": draft.errors_of(name),
                "answer": name == draft.answer,
                "reads": takes_input(operator),
                "layer": layer,
                "row": row,
            }
        )
    return nodes


def described(operator: Operator) -> str:
    """Return what an operator does, in a few words."""
    texts = operator.texts
    window = " ".join(filter(None, (texts.get("window"), texts.get("size"), texts.get("hop"))))
    by = f"by {texts['by']}" if texts.get("by") else ""
    named = [
        line.partition("=")[0].strip()
        for key in ("compute", "outputs")
        for line in texts.get(key, "").split("\n")
    ]
    parts = (
        (texts.get("stream") or texts.get("table") or "").removeprefix("query:"),
        f"on {texts['on']}" if texts.get("on") else "",
        by,
        window,
        texts.get("where", ""),
        ", ".join(filter(None, named)) if not window else "",
    )
    return " · ".join(filter(None, parts))
