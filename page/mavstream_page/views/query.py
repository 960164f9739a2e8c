"""A query: its graph with live numbers, SQL, plan, latency, results, QoS report, and why it gives no rows."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from mavstream_page.components import numbers
from mavstream_page.components.charts import Series, line_chart
from mavstream_page.components.code import code_box, sql_markup
from mavstream_page.components.html import Markup, h, join
from mavstream_page.components.marks import (
    BAD,
    GOOD,
    QUERY_STATES,
    TARGET_STATES,
    card,
    empty,
    mark,
    select,
    table,
)
from mavstream_page.components.plan_graph import live_graph
from mavstream_page.components.reasons import reasons
from mavstream_page.components.results import result_chart, result_table
from mavstream_page.components.screen import View
from mavstream_page.components.targets import changed_targets, targets_form, targets_said
from mavstream_page.data.hub import Hub
from mavstream_page.data.queries import QueryTopic
from mavstream_page.views.queries import change_query, controls
from mavstream_protocol.optimizer import Objective
from mavstream_protocol.wire.qos import TargetReport


class QueryView(View):
    """One query."""

    path = "/queries"

    def __init__(self, hub: Hub, id_: str) -> None:
        super().__init__(hub)
        self.title = id_
        self._id = id_
        self._topic = hub.topic(("query", id_), lambda: QueryTopic(id_))

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """This query."""
        return (("query", self._id),)

    async def act(self, action: dict[str, Any]) -> None:
        """Pause, resume, stop, delete or move the query, or change its targets."""
        if action["action"] == "targets":
            info = await self.hub.client.query(self._id).info()
            changed = await self.hub.client.query(self._id).update(qos=changed_targets(info.spec.qos, action))
            said = ", ".join(targets_said(changed.spec.qos)) or "none"
            self.screen.say(GOOD, f"The targets were changed: {said}.")
        else:
            await change_query(self, action)

    def render(self) -> Markup:
        """Return everything about it."""
        topic = self._topic
        if topic.error is not None:
            return join(
                h("h1", self._id), empty(topic.error, h("a", "All queries", href="/queries", class_="button"))
            )
        if topic.info is None or topic.plan is None or topic.qos is None:
            return empty("Reading from the server …")
        return join(
            self._head(),
            self._figures(),
            card(
                "Operators",
                live_graph(topic) if topic.plan.edges else empty("The query does not run."),
                aside=h(
                    "span",
                    "● calm  ◐ more than 1 k rows wait  ▲ more than 10 k rows wait  ≡ shared  » fused",
                    class_="soft",
                ),
            ),
            h("div", self._latency(), self._throughput(), class_="columns"),
            self._results(),
            h("div", self._reasons(), self._qos(), class_="columns"),
            h(
                "div",
                card("SQL", code_box(sql_markup(topic.sql))),
                card(
                    "Plan",
                    code_box(
                        (topic.plan.running or topic.plan.plan).model_dump_json(
                            indent=2, exclude_defaults=True
                        )
                    ),
                ),
                class_="columns",
            ),
        )

    def _head(self) -> Markup:
        info = self._topic.info
        assert info is not None
        state = mark(QUERY_STATES[info.state.value], info.state.value)
        moves = None
        if self.is_client:
            classes = [(each.name, f"class {each.name}") for each in self._topic.classes]
            moves = select("move", "class", classes, info.spec.class_, "Class", query=info.id)
        parts = [
            h("div", h("h1", info.spec.name), state, class_="titles"),
            h("div", moves, controls(info) if self.is_client else None, class_="buttons"),
        ]
        reason = h("p", mark(BAD, "failed"), " ", info.reason, class_="problem") if info.reason else None
        return join(
            h("div", parts, class_="head"),
            h(
                "p",
                f"{info.id} · class {info.spec.class_} · registered {numbers.clock_time(info.created)} · "
                f"epoch {info.epoch}",
                class_="soft",
            ),
            reason,
        )

    def _figures(self) -> Markup:
        topic = self._topic
        assert topic.info is not None
        assert topic.qos is not None
        latency, memory = topic.qos.latency_ms, topic.qos.memory_bytes
        over = f"last {numbers.duration(topic.qos.window_s)}" if topic.qos.targets else "since its start"
        return h(
            "dl",
            _figure("Rows in", numbers.rate(topic.qos.rows_per_s), "read from its streams"),
            _figure(
                "Answers", numbers.rate(topic.results.last), f"{numbers.count(topic.info.results)} so far"
            ),
            _figure("Latency p95", numbers.milliseconds(latency.p95 if latency else None), over),
            _figure(
                "Memory",
                numbers.size(sum(memory.values())) if memory else numbers.NOTHING,
                " · ".join(f"{kind} {numbers.size(part)}" for kind, part in memory.items() if part > 0)
                or "empty",
            ),
            class_="figures four",
        )

    def _latency(self) -> Markup:
        topic = self._topic
        assert topic.qos is not None
        lines = [Series(name, topic.latency[name], style) for style, name in enumerate(("p50", "p95", "p99"))]
        target = next((one.target for one in topic.qos.targets if one.objective is Objective.LATENCY), None)
        return card("Latency", line_chart("from arrival to answer", lines, numbers.milliseconds, target))

    def _throughput(self) -> Markup:
        lines = [
            Series("rows in", self._topic.rows_in.history, 0),
            Series("answers", self._topic.results.history, 1),
        ]
        return card("Throughput", line_chart("rows per second", lines, numbers.count))

    def _results(self) -> Markup:
        topic = self._topic
        assert topic.info is not None
        if topic.pulled is None and not self.is_client:
            return card("Results", empty("A token of this role does not read results."))
        rows = topic.pulled.rows if topic.pulled else []
        if not rows:
            return card("Results", empty("No answers yet; the reasons are below."))
        return card(
            "Results",
            result_chart(rows, topic.info.fields),
            result_table(rows, topic.info.fields, "results"),
            aside=f"the newest {len(rows)} of {numbers.count(topic.info.results)}",
        )

    def _reasons(self) -> Markup:
        assert self._topic.info is not None
        title = "Why these rows?" if self._topic.info.results else "Why no results?"
        items = [h("li", mark(kind, ""), h("span", text)) for kind, text in reasons(self._topic)]
        return card(title, h("ul", items, class_="reasons"), key="reasons")

    def _qos(self) -> Markup:
        qos, info = self._topic.qos, self._topic.info
        assert qos is not None
        assert info is not None
        rows = [_target(one) for one in qos.targets]
        listed = (
            table(["Target", "#Measured", "State", "Since"], rows, "Targets")
            if rows
            else empty("It has no targets, so nothing is promised and nothing is done to keep it.")
        )
        history = [
            h(
                "li",
                numbers.clock_time(change.at),
                ": ",
                change.before.value,
                " → ",
                change.after.value,
                f", measured {_measured(one, change.measured)}",
            )
            for one in qos.targets
            for change in reversed(one.history)
        ][:12]
        actions = [
            h(
                "li",
                h(
                    "span",
                    numbers.clock_time(each.at),
                    ": ",
                    h("b", each.what),
                    f" ({each.outcome.value}): ",
                    each.why,
                ),
            )
            for each in reversed(qos.actions)
        ][:8]
        form = targets_form(self._id, info.spec.qos) if self.is_client else None
        return card(
            "Quality of service",
            listed,
            form,
            join(h("h3", "Changes"), h("ul", history, class_="reasons")) if history else None,
            join(h("h3", "Actions of the optimizer"), h("ul", actions, class_="reasons"))
            if actions
            else None,
            aside=f"shed {numbers.percent(qos.shed.share)}, {numbers.count(qos.shed.rows)} rows"
            if qos.shed.rows
            else None,
            key="qos",
        )


def _figure(name: str, value: str, more: str) -> Markup:
    return h("div", h("dt", name), h("dd", h("b", value), h("small", more)), class_="figure")


def _target(one: TargetReport) -> Markup:
    return h(
        "tr",
        h("th", f"{one.objective.value} {one.statistic} {_measured(one, one.target)}", scope="row"),
        h("td", _measured(one, one.measured), class_="number"),
        h("td", mark(TARGET_STATES[one.state.value], one.state.value)),
        h("td", numbers.clock_time(one.since)),
    )


def _measured(one: TargetReport, value: float | None) -> str:
    units = {Objective.LATENCY: numbers.milliseconds, Objective.MEMORY: numbers.size}
    return units.get(one.objective, numbers.rate)(value)
