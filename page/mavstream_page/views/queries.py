"""The list of queries: search, filters, and what can be done with each."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from nicegui import ui

from mavstream_page.components import numbers
from mavstream_page.components.charts import sparkline
from mavstream_page.components.html import Child, Markup, h, join
from mavstream_page.components.marks import GOOD, QUERY_STATES, button, empty, mark, select, table
from mavstream_page.components.screen import View
from mavstream_page.components.targets import targets_said
from mavstream_page.data.hub import Hub
from mavstream_page.data.queries import QueriesTopic
from mavstream_protocol.wire.resources import QueryInfo

_MOST = 300
"""Rows that are shown at once."""


class QueriesView(View):
    """All queries."""

    path = "/queries"
    title = "Queries"

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._topic = hub.topic(QueriesTopic.key, QueriesTopic)
        given = ui.context.client.request.query_params
        self._search = ""
        self._class = given.get("class", "")
        self._state = given.get("state", "")

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """The list alone."""
        return (QueriesTopic.key,)

    def render(self) -> Markup:
        """Return filters and the table."""
        if self._topic.polled is None:
            return empty("Reading from the server …")
        new = h("a", "Compose a query", href="/compose", class_="button primary") if self.is_client else None
        head = h("div", h("h1", "Queries"), h("div", new, class_="buttons"), class_="head")
        if not self._topic.queries:
            return join(head, empty("There are no queries yet.", new))
        found = [info for info in self._topic.queries.values() if self._fits(info)]
        priority = {each.name: each.priority for each in self._topic.classes}
        found.sort(key=lambda info: (-priority.get(info.spec.class_, 0), info.spec.name, info.id))
        note = None
        if len(found) > _MOST:
            note = h("p", f"{len(found) - _MOST} more: narrow the search to see them.", class_="soft")
        top: list[Child] = [
            "Query",
            "Class",
            "State",
            "#Answers /s",
            "#Answers",
            "#p95",
            "#Memory",
            "Targets",
            "Actions",
        ]
        listed = table(top, [self._row(info) for info in found[:_MOST]], "Queries")
        none = empty("No query fits.", button("Show all", "reset")) if not found else None
        return join(head, self._filters(len(found)), h("section", none or listed, note, class_="card"))

    async def act(self, action: dict[str, Any]) -> None:
        """Filter, or change a query."""
        what, value = action["action"], str(action.get("value", ""))
        if what == "search":
            self._search = value.strip().lower()
        elif what == "class":
            self._class = value
        elif what == "state":
            self._state = value
        elif what == "reset":
            self._search = self._class = self._state = ""
        else:
            await change_query(self, action)

    def _filters(self, found: int) -> Markup:
        classes = [("", "all classes"), *((each.name, each.name) for each in self._topic.classes)]
        states = [("", "all states"), *((state, state) for state in QUERY_STATES)]
        return h(
            "div",
            h(
                "input",
                type="search",
                placeholder="Search by name, class or stream",
                aria_label="Search queries",
                data_action="search",
                data_on="input",
                id="search",
            ),
            select("class", "class", classes, self._class, "Class"),
            select("state", "state", states, self._state, "State"),
            h("span", f"{found} of {len(self._topic.queries)}", class_="soft", role="status"),
            class_="filters",
        )

    def _fits(self, info: QueryInfo) -> bool:
        if self._class and info.spec.class_ != self._class:
            return False
        if self._state in QUERY_STATES and info.state.value != self._state:
            return False
        read = info.spec.plan.streams | info.spec.plan.queries
        text = " ".join((info.id, info.spec.name, info.spec.class_, *read)).lower()
        return all(word in text for word in self._search.split())

    def _row(self, info: QueryInfo) -> Markup:
        rate, latency = self._topic.results.get(info.id), info.latency_ms
        targets = targets_said(info.spec.qos)
        return h(
            "tr",
            h(
                "th",
                h("a", info.spec.name, href=f"/queries/{info.spec.name}"),
                h("small", info.id) if info.id != info.spec.name else None,
                scope="row",
            ),
            h("td", info.spec.class_),
            h("td", mark(QUERY_STATES[info.state.value], info.state.value, info.reason)),
            h(
                "td",
                sparkline(rate.history) if rate else None,
                numbers.count(rate.last if rate else None),
                class_="number",
            ),
            h("td", numbers.count(info.results), class_="number"),
            h("td", numbers.milliseconds(latency.p95 if latency else None), class_="number"),
            h(
                "td",
                numbers.size(sum(info.memory_bytes.values())) if info.memory_bytes else numbers.NOTHING,
                class_="number",
            ),
            h("td", ", ".join(targets) or h("span", "none", class_="soft")),
            h("td", h("div", controls(info) if self.is_client else None, class_="buttons")),
            data_key=f"query-{info.id}",
        )


def controls(info: QueryInfo) -> Markup:
    """Return the buttons that fit the state of a query."""
    state, made = info.state.value, []
    if state in ("running", "starting", "scheduled"):
        made.append(button("Pause", "pause", kind="small", query=info.id, title=f"Pause {info.spec.name}"))
    if state in ("paused", "failed"):
        made.append(button("Resume", "resume", kind="small", query=info.id, title=f"Resume {info.spec.name}"))
    if state not in ("stopped", "finished"):
        made.append(
            button(
                "Stop",
                "stop",
                kind="small danger",
                query=info.id,
                title=f"Stop {info.spec.name}",
                confirm=f"Stop {info.spec.name}? Its answers are kept; it cannot be started again.",
            )
        )
    else:
        made.append(
            button(
                "Delete",
                "delete",
                kind="small danger",
                query=info.id,
                title=f"Delete {info.spec.name}",
                confirm=f"Delete {info.spec.name} and its answers?",
            )
        )
    return join(*made)


async def change_query(view: View, action: dict[str, Any]) -> None:
    """Pause, resume, stop or delete a query, or move it to another class; raises MavstreamError."""
    what, id_ = action["action"], str(action["query"])
    query = view.hub.client.query(id_)
    if what == "pause":
        await query.pause()
    elif what == "resume":
        await query.resume()
    elif what == "stop":
        await query.stop()
    elif what == "delete":
        await query.delete()
    elif what == "move":
        await query.set_class(str(action["value"]))
    done = {"pause": "paused", "resume": "resumed", "stop": "stopped", "delete": "deleted"}
    said = done.get(what) or f"moved to class {action.get('value')}"
    view.screen.say(GOOD, f"{id_} was {said}.")
