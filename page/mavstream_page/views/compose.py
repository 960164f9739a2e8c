"""Compose a query: as SQL or as operators, checked while one types, and submitted."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

from nicegui import ui

from mavstream_page.components import numbers
from mavstream_page.components.fields import fields_shown
from mavstream_page.components.html import Child, Markup, h, join
from mavstream_page.components.live import Live
from mavstream_page.components.marks import BAD, GOOD, QUIET, WARNING, button, card, empty, mark, select
from mavstream_page.components.plan_graph import plan_graph
from mavstream_page.components.results import result_chart, result_table
from mavstream_page.components.screen import View
from mavstream_page.components.steps import step_editor
from mavstream_page.composer.checker import Checker
from mavstream_page.composer.draft import Draft
from mavstream_page.composer.names import names_of
from mavstream_page.composer.sql_editor import SqlEditor
from mavstream_page.data.catalog import catalog_of
from mavstream_page.data.hub import Hub
from mavstream_page.data.queries import QueryTopic
from mavstream_page.data.streams import StreamsTopic
from mavstream_protocol import Plan
from mavstream_protocol.admission import AdmissionEstimate, Outlook
from mavstream_protocol.wire.resources import TableInfo
from mavstream_protocol.wire.trials import TrialResult

_TRIED_ROWS = 1000
_OUTLOOKS = {Outlook.YES: GOOD, Outlook.NO: BAD, Outlook.UNKNOWN: QUIET}


class ComposeView(View):
    """A new query."""

    path = "/compose"
    title = "Compose"

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._draft = Draft()
        self._checker = Checker(self._draft, hub.client, self._answered)
        self._streams = hub.topic(StreamsTopic.key, StreamsTopic)
        self._submitted: QueryTopic | None = None
        self._version = 0
        self._trial: TrialResult | None = None
        self._trying = False

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """The streams and tables, and the query that was submitted."""
        if self._submitted is None:
            return (StreamsTopic.key,)
        return (StreamsTopic.key, ("query", self._submitted.id))

    def build(self) -> None:
        """Place the editor beside the graph."""
        act = self.screen.act
        with ui.element("div").classes("columns") as self._body:
            with ui.element("div"):
                with ui.element("section").classes("card editor"):
                    self._title = Live(Markup(""), act)
                    self._editor = SqlEditor(self._typed, "sql-error")
                    self._steps = Live(Markup(""), act)
                    self._wrong = Live(Markup(""), act)
                self._left = Live(Markup(""), act)
            self._right = Live(Markup(""), act)

    def show(self) -> None:
        """Show the draft, and what can be named."""
        away = not self.is_client or self._streams.polled is None
        self._body.style("display:none" if away else "", remove="" if away else "display:none")
        if away:
            return
        draft = self._draft
        catalog = catalog_of(self._streams.streams.values(), self._streams.tables.values())
        if catalog != draft.catalog:
            draft.catalog = catalog
            self._editor.complete(names_of(catalog))
            self._changed()
        is_sql = draft.mode == "sql"
        self._title.show(h("header", h("h2", "SQL" if is_sql else "Operators")))
        self._editor.style("display:none" if not is_sql else "", remove="" if not is_sql else "display:none")
        self._editor.put(draft.sql)
        self._editor.mark_errors(draft.errors if is_sql else ())
        self._steps.show(Markup("") if is_sql else step_editor(draft, self._streams, self._version))
        self._wrong.show(self._error())
        self._left.show(join(self._sources(), self._exchange()))
        self._right.show(join(self._check(), self._submission(), self._results()))

    async def act(self, action: dict[str, Any]) -> None:
        """Edit, check, import, export or submit."""
        what, draft = action["action"], self._draft
        if what == "submit":
            await self._submit(action)
            return
        if what == "try":
            await self._try()
            return
        if what == "mode":
            self._switch(str(action["mode"]))
        elif what == "add":
            draft.add(str(action["op"]))
            self._version += 1
        elif what == "remove":
            draft.remove(str(action["step"]))
            self._version += 1
        elif what == "step":
            _, texts = draft.steps[str(action["step"])]
            texts |= {field: str(action[field]) for field in texts if field in action}
        elif what == "start":
            draft.sql, draft.mode = f"SELECT *\nFROM {action['stream']}", "sql"
        elif what == "import":
            self._import(str(action.get("text", "")))
        else:
            await super().act(action)
        self._changed()

    def render(self) -> Markup:
        """Return what stands above the editor."""
        if not self.is_client:
            return empty(
                "A token of this role does not register queries.",
                h("a", "See the queries", href="/queries", class_="button"),
            )
        if self._streams.polled is None:
            return empty("Reading from the server …")
        return h("div", h("h1", "Compose a query"), self._modes(), class_="head")

    async def _typed(self, text: str) -> None:
        self._draft.sql = text
        self._changed()
        self.screen.refresh()

    def _changed(self) -> None:
        self._draft.read()
        self._trial = None
        self._checker.ask()

    def _answered(self) -> None:
        self.screen.refresh()

    async def _submit(self, action: dict[str, Any]) -> None:
        draft = self._draft
        if draft.plan is None or draft.error:
            raise ValueError(draft.error or "there is no query yet: write one first")
        latency = str(action.get("latency", "")).strip()
        query = await self.hub.client.submit(
            draft.plan,
            name=str(action.get("name", "")).strip() or None,
            class_=str(action.get("class", "")) or None,
            qos={"latency": {"p95": latency}} if latency else None,
        )
        self._submitted = self.hub.topic(("query", query.id), lambda: QueryTopic(query.id))
        self.screen.watch_again()
        self.screen.say(GOOD, "Submitted as ", h("a", query.id, href=f"/queries/{query.id}"), ".")

    async def _try(self) -> None:
        if self._draft.plan is None or self._draft.error:
            raise ValueError(self._draft.error or "there is no query yet: write one first")
        self._trial, self._trying = None, True
        self.screen.refresh()
        try:
            self._trial = await self.hub.patient().try_query(self._draft.plan, rows=_TRIED_ROWS, limit=50)
        finally:
            self._trying = False

    def _switch(self, mode: str) -> None:
        if mode == self._draft.mode:
            return
        if mode == "steps":
            self._draft.to_steps()
        else:
            self._draft.to_sql()
        self._version += 1

    def _import(self, text: str) -> None:
        if text.lstrip().startswith("{"):
            try:
                given = json.loads(text)
            except json.JSONDecodeError as error:
                raise ValueError(f"the text is not JSON ({error}): give a plan or SQL") from None
            self._draft.put(Plan.model_validate(given.get("plan", given)))
        else:
            self._draft.sql, self._draft.mode = text, "sql"
        self._version += 1

    def _modes(self) -> Markup:
        return h(
            "div",
            [
                h(
                    "button",
                    text,
                    type="button",
                    class_="button",
                    data_action="mode",
                    data_mode=mode,
                    aria_pressed="true" if self._draft.mode == mode else "false",
                )
                for mode, text in (("sql", "SQL"), ("steps", "Operators"))
            ],
            class_="tabs",
            role="group",
            aria_label="Compose as",
        )

    def _error(self) -> Markup:
        draft = self._draft
        if draft.error is None:
            return h("p", id="sql-error")
        items = []
        for each in draft.errors:
            at = f"Line {each.line}, column {each.column}: " if each.line else ""
            items.append(h("p", mark(BAD, ""), " ", at, each.detail))
        return h("div", items, class_="problem", id="sql-error", role="status")

    def _sources(self) -> Markup:
        items = [
            h(
                "li",
                button("Query it", "start", kind="small", stream=name, title=f"Query {name}"),
                h("b", name),
                fields_shown(_fields(info), None),
            )
            for name, info in (*self._streams.streams.items(), *self._streams.tables.items())
        ]
        shown = (
            h("ul", items, class_="sources")
            if items
            else empty("There are no streams yet.", h("a", "Create one", href="/streams", class_="button"))
        )
        return card("Streams and tables", shown)

    def _exchange(self) -> Markup:
        plan, sql = self._draft.plan, self._draft.sql if self._draft.mode == "sql" else ""
        exported = (
            None
            if plan is None
            else h(
                "details",
                h("summary", "Export"),
                h(
                    "textarea",
                    plan.model_dump_json(indent=2, exclude_defaults=True, by_alias=True),
                    rows=8,
                    readonly=True,
                    class_="code wide",
                    aria_label="Plan as JSON",
                    data_version=hash(plan.model_dump_json()),
                    data_text=plan.model_dump_json(indent=2, exclude_defaults=True, by_alias=True),
                ),
                h("pre", h("code", sql), class_="code") if sql else None,
            )
        )
        form = h(
            "details",
            h("summary", "Import"),
            h(
                "form",
                h(
                    "label",
                    "Plan as JSON, or SQL",
                    h("textarea", name="text", rows=5, cols=50, class_="code"),
                ),
                h("button", "Import", type="submit", class_="button"),
                data_action="import",
                id="import",
            ),
        )
        return card("Import and export", form, exported)

    def _check(self) -> Markup:
        draft = self._draft
        if draft.plan is None:
            return card(
                "Graph", empty("The operators appear here as soon as the query can be read."), key="graph"
            )
        schemas = draft.schemas
        valid = draft.ready
        state = mark(GOOD, "valid") if valid else mark(BAD, "not valid")
        root = schemas.get(draft.plan.root.partition(".")[0], ())
        answer = join(h("h3", "Columns of the answer"), fields_shown(root, None)) if root else None
        estimate = draft.validation.admission if draft.validation else None
        return card(
            "Graph",
            plan_graph(draft.plan, schemas, draft.wrong),
            answer,
            self._admission(estimate) if estimate else None,
            aside=state,
            key="graph",
        )

    @staticmethod
    def _admission(estimate: AdmissionEstimate) -> Markup:
        outlooks = [
            h(
                "li",
                mark(_OUTLOOKS[one.kept], one.kept.value),
                h("span", f"{one.objective} {one.statistic}: {one.reason}"),
            )
            for one in estimate.targets
        ]
        warnings = [h("li", mark(WARNING, ""), h("span", text)) for text in estimate.warnings]
        load = (
            f"It takes about {numbers.percent(estimate.cost_us_per_s / 1e6)} of the engine's time at "
            f"{numbers.rate(estimate.rows_per_s)}."
        )
        said = h("li", mark(GOOD if estimate.admitted else WARNING, ""), h("span", load))
        return join(h("h3", "Admission"), h("ul", said, outlooks, warnings, class_="reasons"))

    def _submission(self) -> Markup:
        classes = [(each.name, f"{each.name}, priority {each.priority}") for each in self._streams.classes]
        form = h(
            "form",
            h("label", "Name", h("input", name="name", placeholder="hot_rooms", size=14)),
            h("label", "Class", select(None, "class", classes, "default", "Class of the query")),
            h("label", "p95 latency target", h("input", name="latency", placeholder="none", size=8)),
            h(
                "button",
                "Submit",
                type="submit",
                class_="button primary",
                disabled=self._draft.plan is None or self._draft.error is not None,
            ),
            data_action="submit",
            id="submit",
        )
        ready = self._draft.plan is not None and self._draft.error is None
        tried = button(f"Try it on the last {_TRIED_ROWS:,} rows", "try", disabled=not ready)
        return card("Try and submit", h("p", tried), self._tried(), form)

    def _tried(self) -> Markup | None:
        trial = self._trial
        if self._trying:
            return h("p", "Trying it in a process of its own …", role="status", aria_busy="true")
        if trial is None:
            return None
        read = ", ".join(f"{numbers.count(rows)} rows of {stream}" for stream, rows in trial.read.items())
        whole = "" if trial.complete else " It ran out of time before it had read all of them."
        said = (
            f"{numbers.count(trial.results)} answers from {read} in {numbers.duration(trial.seconds)}.{whole}"
        )
        if not trial.rows:
            return h("p", f"{said} Windows that are still open have not answered.", role="status", id="tried")
        return h(
            "div",
            h("p", said, role="status"),
            result_chart(trial.rows, trial.fields),
            result_table(trial.rows, trial.fields, "trial", 8),
            id="tried",
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


def _fields(info: Any) -> Any:
    return info.fields if isinstance(info, TableInfo) else info.spec.fields
