"""The overview: what is wrong now, every class against its target, and what the optimizer did."""

from __future__ import annotations

from collections.abc import Hashable

from mavstream_page.components import numbers
from mavstream_page.components.charts import Series, bar, line_chart, sparkline
from mavstream_page.components.html import Child, Markup, h, join
from mavstream_page.components.marks import BAD, GOOD, OUTCOMES, QUIET, WARNING, card, empty, mark, table
from mavstream_page.components.screen import View
from mavstream_page.data.hub import Hub
from mavstream_page.data.overview import OverviewTopic

_SHOWN_DECISIONS = 20


class OverviewView(View):
    """The first thing that one sees."""

    path = "/"
    title = "Overview"

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._topic = hub.topic(OverviewTopic.key, OverviewTopic)

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """The overview alone."""
        return (OverviewTopic.key,)

    def render(self) -> Markup:
        """Return problems, figures, classes, charts and decisions."""
        topic = self._topic
        if not topic.stats:
            return empty("Reading from the server …")
        return join(
            h("h1", "Overview", class_="hidden"),
            self._problems(),
            self._figures(),
            self._classes(),
            h("div", self._latency(), self._throughput(), class_="columns"),
            self._decisions(),
        )

    def _problems(self) -> Markup:
        found: list[Markup] = []
        stats = self._topic.stats
        if stats["engine"] is None:
            found.append(
                _problem(BAD, "The engine is starting.", "Rows are taken and queries go on in a moment.")
            )
        for name, one in stats["classes"].items():
            if one["starved"]:
                found.append(
                    _problem(
                        BAD,
                        f"Class {name} is starved:",
                        "its rows wait while it gets no turn. ",
                        h("a", "Choose another policy", href="/scheduler"),
                    )
                )
            ratio = one["inversion_ratio"]
            if ratio is not None and ratio > 1.2 and one["latency_ms"]["count"]:
                found.append(
                    _problem(
                        WARNING,
                        f"Priority inversion: class {name}",
                        f"answers {numbers.digits(ratio)} times slower than the less important class "
                        f"{one['next_class']}. ",
                        h("a", "See who runs when", href="/scheduler"),
                    )
                )
        for name, class_ in self._topic.classes.items():
            history = self._topic.histories.get(name)
            latency = history.latency.percentiles[95].last if history else None
            if class_.latency and latency is not None and latency > class_.latency / 1000:
                found.append(
                    _problem(
                        WARNING,
                        f"Class {name} is above its target:",
                        f"its p95 latency is {numbers.milliseconds(latency)} instead of "
                        f"{numbers.milliseconds(class_.latency / 1000)}. ",
                        h("a", "Show its queries", href=f"/queries?class={name}"),
                    )
                )
        optimizer = self._topic.optimizer
        for name, states in (optimizer.targets if optimizer else {}).items():
            missed, risk = states.get("missed", 0), states.get("at risk", 0)
            if missed:
                found.append(
                    _problem(
                        BAD,
                        f"{missed} missed target{'s' * (missed > 1)} in class {name}.",
                        h("a", "Show these queries", href=f"/queries?class={name}"),
                    )
                )
            elif risk:
                found.append(
                    _problem(
                        WARNING,
                        f"{risk} target{'s' * (risk > 1)} at risk in class {name}.",
                        h("a", "Show these queries", href=f"/queries?class={name}"),
                    )
                )
        for query, share in (optimizer.shed if optimizer else {}).items():
            found.append(
                _problem(
                    WARNING,
                    f"Load is shed from {query}:",
                    f"{numbers.percent(share)} of its rows are dropped. ",
                    h("a", "Show it", href=f"/queries/{query}"),
                )
            )
        if not found:
            found = [_problem(GOOD, "Nothing is wrong.", "No target is missed, no class starves.")]
        return h(
            "section",
            h("h2", "Now", class_="hidden"),
            h("ul", found),
            class_="now",
            aria_live="polite",
            id="now",
        )

    def _figures(self) -> Markup:
        stats, engine = self._topic.stats, self._topic.stats["engine"]
        queries = sum(one["queries"] for one in stats["classes"].values())
        memory = sum(engine["memory_bytes"].values()) if engine else None
        policy = self._topic.scheduler.policy if self._topic.scheduler else numbers.NOTHING
        return h(
            "dl",
            _figure("Queries", numbers.count(queries), f"on {stats['streams']} streams"),
            _figure(
                "Rows in",
                numbers.rate(self._topic.received.last),
                f"{numbers.count(stats['tuples']['received'])} so far",
            ),
            _figure(
                "Engine busy",
                numbers.percent(self._topic.busy.last),
                f"up {numbers.duration(engine['uptime_s'])}" if engine else "starting",
            ),
            _figure("Query memory", numbers.size(memory), "queued, state and backlog"),
            _figure("Policy", policy, h("a", "change", href="/scheduler")),
            _figure(
                "Subscribers",
                numbers.count(stats["subscribers"]),
                f"{stats['producers']} producer{'s' * (stats['producers'] != 1)}",
            ),
            class_="figures",
        )

    def _classes(self) -> Markup:
        rows = []
        for style, (name, class_) in enumerate(self._topic.classes.items()):
            stats, history = self._topic.stats["classes"].get(name), self._topic.histories.get(name)
            if stats is None or history is None:
                continue
            recent = {percent: one.last for percent, one in history.latency.percentiles.items()}
            target = class_.latency / 1000 if class_.latency else None
            latency = recent[95]
            state = mark(QUIET, "no target", "The class has no latency target; queries may have their own.")
            if target is not None and latency is None:
                state = mark(QUIET, f"target {numbers.milliseconds(target)}", "No answers in the last 10 s.")
            if target is not None and latency is not None:
                kept = latency <= target
                state = mark(
                    GOOD if kept else BAD, f"{'within' if kept else 'above'} {numbers.milliseconds(target)}"
                )
            cells = [
                h(
                    "th",
                    h("a", name, href=f"/queries?class={name}"),
                    h("small", class_.description),
                    scope="row",
                ),
                h("td", class_.priority, class_="number"),
                h("td", numbers.count(stats["queries"]), class_="number"),
                h(
                    "td",
                    sparkline(history.rows_in.history, style, "rows in"),
                    numbers.count(history.rows_in.last),
                    class_="number",
                ),
                h(
                    "td",
                    sparkline(history.results.history, style, "answers"),
                    numbers.count(history.results.last),
                    class_="number",
                ),
                *(
                    h("td", numbers.milliseconds(recent[percent]), class_="number")
                    for percent in (50, 95, 99)
                ),
                h("td", self._marks(stats, state)),
                h("td", bar(history.share.last, numbers.percent(history.share.last), style)),
                h("td", numbers.size(sum(stats["memory_bytes"].values())), class_="number"),
            ]
            rows.append(h("tr", cells, data_key=f"class-{name}"))
        head: list[Child] = [
            "Class",
            "#Priority",
            "#Queries",
            "#Rows in /s",
            "#Answers /s",
            "#p50",
            "#p95",
            "#p99",
            "Health",
            "Engine share",
            "#Memory",
        ]
        return card(
            "Classes",
            table(head, rows, "Classes with rates, latency and memory", "dense"),
            aside=h("span", "latency of the last 10 s", class_="soft"),
        )

    @staticmethod
    def _marks(stats: dict[str, object], target: Markup) -> Markup:
        if stats["starved"]:
            return mark(BAD, "starved")
        ratio = stats["inversion_ratio"]
        if isinstance(ratio, float) and ratio > 1.2:
            return mark(
                WARNING,
                f"inverted, {numbers.digits(ratio)} times",
                f"answers slower than class {stats['next_class']}, which is less important",
            )
        return target

    def _latency(self) -> Markup:
        shown = [
            Series(name, self._topic.histories[name].latency.percentiles[95], style)
            for style, name in enumerate(self._topic.classes)
            if name in self._topic.histories and self._topic.stats["classes"][name]["queries"]
        ]
        targets = [each.latency / 1000 for each in self._topic.classes.values() if each.latency]
        chart = line_chart("p95 latency", shown, numbers.milliseconds, min(targets, default=None))
        return card("Latency", chart if shown else _no_queries(), class_="half")

    def _throughput(self) -> Markup:
        shown = [
            Series(name, self._topic.histories[name].results.history, style)
            for style, name in enumerate(self._topic.classes)
            if name in self._topic.histories and self._topic.stats["classes"][name]["queries"]
        ]
        chart = line_chart("answers per second", shown, numbers.count)
        return card("Throughput", chart if shown else _no_queries(), class_="half")

    def _decisions(self) -> Markup:
        if not self._topic.decisions:
            enabled = self._topic.optimizer is not None and self._topic.optimizer.settings.enabled
            text = (
                "The optimizer watches the targets and had no reason to act."
                if enabled
                else "The optimizer is switched off."
            )
            return card("Decisions of the optimizer", empty(text), key="decisions")
        items = []
        for each in self._topic.decisions[:_SHOWN_DECISIONS]:
            queries = [h("a", name, href=f"/queries/{name}") for name in each.queries[:4]]
            more = f" and {len(each.queries) - 4} more" if len(each.queries) > 4 else ""
            about = join(*(join(one, " ") for one in queries), more)
            items.append(
                h(
                    "li",
                    h("time", numbers.clock_time(each.at), datetime=each.at),
                    h(
                        "div",
                        h("b", each.what),
                        " ",
                        mark(OUTCOMES[each.outcome.value], each.outcome.value),
                        class_="what",
                    ),
                    h("p", each.why),
                    h(
                        "p",
                        f"rule {each.rule} · distress {numbers.digits(each.before)} → "
                        f"{numbers.NOTHING if each.after is None else numbers.digits(each.after)} · ",
                        about,
                        f" {each.note}",
                        class_="soft",
                    ),
                    class_=f"decision {OUTCOMES[each.outcome.value]}",
                    data_key=f"decision-{each.number}",
                )
            )
        return card(
            "Decisions of the optimizer",
            h("ol", items, class_="timeline", id="decisions"),
            aside=f"{self._topic.optimizer.decisions if self._topic.optimizer else 0} so far",
            key="decisions",
        )


def _problem(kind: str, title: str, *text: Child) -> Markup:
    return h("li", mark(kind, ""), h("b", title), " ", *text, class_=kind)


def _figure(name: str, value: str, more: Child) -> Markup:
    return h("div", h("dt", name), h("dd", h("b", value), h("small", more)), class_="figure")


def _no_queries() -> Markup:
    return empty("No queries yet.", h("a", "Compose one", href="/compose", class_="button primary"))
