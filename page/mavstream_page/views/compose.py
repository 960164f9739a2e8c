"""Compose a query: as SQL and as operators, two forms of one plan, checked while one edits, and submitted."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from nicegui import ui

from mavstream_page.components import numbers
from mavstream_page.components.fields import fields_shown
from mavstream_page.components.html import Child, Markup, h, join
from mavstream_page.components.live import Live
from mavstream_page.components.marks import BAD, GOOD, QUIET, button, card, empty, mark
from mavstream_page.components.results import result_table
from mavstream_page.components.screen import View
from mavstream_page.composer import editing
from mavstream_page.composer.canvas import Canvas
from mavstream_page.composer.checker import Checker
from mavstream_page.composer.draft import Draft
from mavstream_page.composer.exchange import exchange_card, taken_in, text_of_file
from mavstream_page.composer.names import names_of
from mavstream_page.composer.operator_form import operator_form
from mavstream_page.composer.operators import FIELDS, Operators
from mavstream_page.composer.outcome import TRIED_ROWS, outcome_card
from mavstream_page.composer.reading import field_specs
from mavstream_page.composer.sources import Sources
from mavstream_page.composer.sql_editor import SqlEditor
from mavstream_page.data.hub import Hub
from mavstream_page.data.queries import QueryTopic
from mavstream_page.data.streams import StreamsTopic
from mavstream_protocol.schema import Schema
from mavstream_protocol.wire.trials import TrialResult

_ADDED = tuple(op for op in FIELDS if op not in ("source", "table"))
"""The operators of the palette; streams and tables have their own."""


class ComposeView(View):
    """A new query."""

    path = "/compose"
    title = "Compose"

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._draft = Draft()
        self._checker = Checker(self._draft, hub.client, self._refresh)
        self._streams = hub.topic(StreamsTopic.key, StreamsTopic)
        self._known = Sources()
        self._submitted: QueryTopic | None = None
        self._selected = ""
        self._trial: TrialResult | None = None
        self._trying = False

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """The streams and tables, and the query that was submitted."""
        if self._submitted is None:
            return (StreamsTopic.key,)
        return (StreamsTopic.key, ("query", self._submitted.id))

    def build(self) -> None:
        """Place the editor beside the canvas."""
        act = self.screen.act
        with ui.element("div").classes("columns composer") as self._body:
            with ui.element("div"):
                with ui.element("section").classes("card editor"):
                    self._title = Live(Markup(""))
                    self._editor = SqlEditor(self._typed, lambda: act({"action": "try"}), "sql-error")
                    self._wrong = Live(Markup(""), act)
                self._sources = Live(Markup(""), act, "sources-box")
                self._outcome = Live(Markup(""), act, "outcome-box")
            with ui.element("div"):
                with ui.element("section").classes("card operators"):
                    self._palette = Live(Markup(""), act)
                    self._canvas = Canvas(act)
                    self._form = Live(Markup(""), act)
                self._exchange = Live(Markup(""), act, "exchange-box")

    def show(self) -> None:
        """Show the draft, and what can be named."""
        away = not self.is_client or self._streams.polled is None
        self._body.style("display:none" if away else "", remove="" if away else "display:none")
        if away:
            return
        draft = self._draft
        if self._known.update(self._streams):
            draft.catalog = self._known.catalog
            self._editor.complete(names_of(draft.catalog))
            draft.read()
            self._checker.ask()
        if self._selected not in draft.operators:
            self._selected = draft.answer
        self._title.show(self._sql_head())
        self._editor.put(draft.sql)
        self._editor.mark_errors(draft.errors)
        self._wrong.show(self._problems())
        self._sources.show(self._source_card())
        self._exchange.show(exchange_card(draft))
        self._palette.show(self._palette_bar())
        self._canvas.show(draft, self._selected)
        self._form.show(self._operator())
        self._outcome.show(
            join(outcome_card(draft, self._streams.classes, self._trial, self._trying), self._results())
        )

    async def act(self, action: dict[str, Any]) -> None:
        """Edit, check, import, export or submit."""
        what, draft = action["action"], self._draft
        if what == "submit":
            await self._submit(action)
        elif what == "try":
            await self._try()
        elif what == "select":
            self._selected = str(action["node"])
        elif what in ("undo", "redo"):
            draft.undo() if what == "undo" else draft.redo()
            self._edited("node")
        elif what == "import":
            self._import(action)
        elif what == "fill":
            self._fill(str(action["node"]), action["texts"])
        elif what == "rename":
            self._rename(str(action["node"]), str(action["name"]).strip())
        elif what in ("add", "remove", "connect", "disconnect"):
            self._edit(what, action)
        else:
            await super().act(action)

    def render(self) -> Markup:
        """Return what stands above the editor."""
        if not self.is_client:
            return empty(
                "A token of this role does not register queries.",
                h("a", "See the queries", href="/queries", class_="button"),
            )
        if self._streams.polled is None:
            return empty("Reading from the server …")
        return h("div", h("h1", "Compose a query"), class_="head")

    def _refresh(self) -> None:
        self.screen.refresh()

    async def _typed(self, text: str) -> None:
        self._draft.write(text)
        self._edited()
        self._refresh()

    def _edited(self, focus: str = "") -> None:
        self._trial = None
        self._checker.ask()
        if focus:
            self._canvas.focus(focus)

    def _edit(self, what: str, action: dict[str, Any]) -> None:
        node, from_, to = (str(action.get(key, "")) for key in ("node", "from", "to"))
        with self._draft.edit() as operators:
            if what == "add":
                self._selected = self._add(operators, action)
            elif what == "remove" and node in operators:
                below = [each.partition(".")[0] for _, each in operators[node].reads()]
                editing.remove(operators, node)
                self._selected = next((each for each in below if each in operators), "")
            elif what == "connect" and from_ in operators and to in operators:
                editing.connect(operators, from_, to)
                self._selected = to
            elif what == "disconnect":
                editing.disconnect(operators, (from_, to))
        self._edited("form" if what == "add" else "node")

    def _add(self, operators: Operators, action: dict[str, Any]) -> str:
        """Add an operator: where it was dropped, otherwise behind the selected one."""
        op, from_, to = str(action["op"]), str(action.get("from", "")), str(action.get("to", ""))
        texts = {key: str(action[key]) for key in ("stream", "table") if key in action}
        after = str(action.get("after", "" if "place" in action else self._selected))
        name = editing.add(operators, op, after if after in operators else None, **texts)
        if from_.partition(".")[0] in operators and to in operators and editing.takes_input(operators[name]):
            editing.insert(operators, name, from_, to)
        return name

    def _fill(self, node: str, texts: dict[str, str]) -> None:
        if node in self._draft.operators:
            self._draft.fill(node, texts)
            self._edited()

    def _rename(self, node: str, new: str) -> None:
        if node in self._draft.operators:
            self._draft.rename(node, new)
            self._selected = new
            self._edited()

    def _import(self, action: dict[str, Any]) -> None:
        if "file" in action:
            text = text_of_file(str(action["file"]), int(action["size"]), str(action["content"]))
        else:
            text = str(action.get("text", ""))
        taken_in(self._draft, text)
        self._edited()

    async def _submit(self, action: dict[str, Any]) -> None:
        latency = str(action.get("latency", "")).strip()
        query = await self.hub.client.submit(
            self._checked(),
            name=str(action.get("name", "")).strip() or None,
            class_=str(action.get("class", "")) or None,
            qos={"latency": {"p95": latency}} if latency else None,
        )
        self._submitted = self.hub.topic(("query", query.id), lambda: QueryTopic(query.id))
        self.screen.watch_again()
        self.screen.say(GOOD, "Submitted as ", h("a", query.id, href=f"/queries/{query.id}"), ".")

    async def _try(self) -> None:
        plan = self._checked()
        self._trial, self._trying = None, True
        self._refresh()
        try:
            self._trial = await self.hub.patient().try_query(plan, rows=TRIED_ROWS, limit=50)
        finally:
            self._trying = False

    def _checked(self) -> Any:
        draft = self._draft
        if draft.plan is None or draft.errors:
            reasons = "; ".join(each.detail for each in draft.errors)
            raise ValueError(reasons or "there is no query yet: write one first")
        return draft.plan

    def _sql_head(self) -> Markup:
        old = mark(QUIET, "of the last complete graph") if self._draft.sql_is_old else None
        return h("header", h("h2", "SQL"), h("div", old, class_="aside") if old else None)

    def _problems(self) -> Markup:
        if self._draft.sql_is_old:
            return h("p", id="sql-error")
        items = []
        for each in self._draft.errors:
            at = f"Line {each.line}, column {each.column}: " if each.line else ""
            items.append(h("p", mark(BAD, ""), " ", at, each.detail))
        return h("div", items, class_="problem", id="sql-error", role="status")

    def _source_card(self) -> Markup:
        catalog = self._draft.catalog
        items = [
            _source("stream" if shape.is_stream else "query", name, shape.schema)
            for name, shape in catalog.streams.items()
        ] + [_source("table", name, schema) for name, schema in catalog.tables.items()]
        shown = (
            h("ul", items, class_="sources")
            if items
            else empty("There are no streams yet.", h("a", "Create one", href="/streams", class_="button"))
        )
        return card("What queries can read", shown, key="sources")

    def _palette_bar(self) -> Markup:
        draft = self._draft
        added = [
            h(
                "button",
                f"+ {op}",
                type="button",
                class_="button small",
                draggable="true",
                data_action="add",
                data_op=op,
            )
            for op in _ADDED
        ]
        old = mark(QUIET, "of the last SQL that could be read") if draft.operators_are_old else None
        history = h(
            "div",
            old,
            button("Undo", "undo", kind="small", disabled=not draft.can_undo),
            button("Redo", "redo", kind="small", disabled=not draft.can_redo),
            class_="aside",
        )
        return join(
            h("header", h("h2", "Operators"), history),
            h("div", added, class_="buttons palette", role="group", aria_label="Add an operator"),
        )

    def _operator(self) -> Markup:
        if self._selected not in self._draft.operators:
            return Markup("")
        queries = [f"query:{name}" for name in self._known.queries]
        return operator_form(
            self._draft, self._selected, [*self._streams.streams, *queries], list(self._streams.tables)
        )

    def _results(self) -> Markup | None:
        topic = self._submitted
        if topic is None:
            return None
        link: Child = h("a", "Open it", href=f"/queries/{topic.info.spec.name if topic.info else topic.id}")
        rows = topic.pulled.rows if topic.pulled else []
        if topic.info is None or not rows:
            return card("Results", empty("Waiting for the first rows …"), aside=link)
        return card(
            "Results",
            result_table(rows, topic.info.fields, "results", 8),
            aside=join(f"{numbers.count(topic.info.results)} so far ", link),
        )


def _source(kind: str, name: str, schema: Schema) -> Markup:
    """Return what adds a stream, a query or a table, with its columns."""
    added = f"query:{name}" if kind == "query" else name
    return h(
        "li",
        h(
            "button",
            f"+ {name}",
            type="button",
            class_="button small",
            draggable="true",
            title=f"Add {kind} {name}",
            aria_label=f"Add {kind} {name}",
            data_action="add",
            data_op="table" if kind == "table" else "source",
            **{"data_table" if kind == "table" else "data_stream": added},
        ),
        h("span", kind, class_="soft") if kind != "stream" else None,
        fields_shown(field_specs(schema), None),
    )
