"""The scheduler: who ran when, and choosing another policy after a comparison in the simulator."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

from mavstream_page.components import numbers
from mavstream_page.components.html import Child, Markup, h, join
from mavstream_page.components.lanes import timeline
from mavstream_page.components.marks import BAD, GOOD, INFO, card, empty, mark, select, table
from mavstream_page.components.screen import View
from mavstream_page.data.hub import Hub
from mavstream_page.data.overview import OverviewTopic
from mavstream_page.data.scheduler import Comparison, SchedulerTopic, TraceTopic
from mavstream_protocol.wire.resources import PolicyInfo

_SUGGESTED = ("cqc", "abd", "deadline", "hr")
_MOST_COMPARED = 6


class SchedulerView(View):
    """The policy in use, and what others would do."""

    path = "/scheduler"
    title = "Scheduler"

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._topic = hub.topic(SchedulerTopic.key, SchedulerTopic)
        self._trace = hub.topic(TraceTopic.key, TraceTopic)
        self._overview = hub.topic(OverviewTopic.key, OverviewTopic)
        self._chosen: str | None = None
        self._comparison: Comparison | None = None

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """Policy, trace, and the latencies of classes now."""
        return (SchedulerTopic.key, TraceTopic.key, OverviewTopic.key)

    async def act(self, action: dict[str, Any]) -> None:
        """Choose, compare or switch."""
        what = action["action"]
        if what == "choose":
            self._chosen = str(action["value"])
        elif what == "compare":
            wanted = [each.name for each in self._topic.policies if f"policy-{each.name}" in action]
            if not 1 <= len(wanted) <= _MOST_COMPARED:
                raise ValueError(f"{len(wanted)} policies are chosen: compare 1 to {_MOST_COMPARED} of them")
            if self._comparison is not None and self._comparison.running:
                raise ValueError("a comparison is running: wait for its end")
            self._comparison = Comparison(self.hub.client.url, self.hub.token, wanted)
        elif what == "switch":
            policy, options = str(action["policy"]), _options(str(action.get("options", "")))
            await self.hub.client.set_scheduler(policy, **options)
            self._chosen = None
            self.screen.say(GOOD, f"The policy is {policy} now.")
        else:
            await super().act(action)

    def render(self) -> Markup:
        """Return the policy, the timeline and the comparison."""
        if self._topic.current is None:
            return empty("Reading from the server …")
        return join(
            h("h1", "Scheduler", class_="hidden"),
            self._timeline(),
            h("div", self._policy(), self._compare(), class_="columns"),
        )

    def _timeline(self) -> Markup:
        trace, failed = self._trace.trace, self._trace.failed
        if trace is None:
            return card("Who ran when", empty(failed or "Recording half a second …"))
        names = [each.name for each in self._topic.classes]
        note = f"{len(trace.slices)} slices in {numbers.milliseconds(trace.seconds * 1000)} from "
        shown = timeline(trace, names) if trace.slices else empty("Nothing ran: feed the streams.")
        return card("Who ran when", shown, aside=f"{note}{numbers.clock_time(trace.started)}, every 5 s")

    def _policy(self) -> Markup:
        current = self._topic.current
        assert current is not None
        known = {each.name: each for each in self._topic.policies}
        chosen = self._chosen or current.policy
        about = known.get(chosen)
        options = current.options if chosen == current.policy else {}
        form = None
        if self.is_admin:
            form = h(
                "form",
                h(
                    "label",
                    "Policy",
                    select("choose", "policy", [(name, name) for name in known], chosen, "Policy"),
                ),
                h(
                    "label",
                    "Options (JSON)",
                    h("input", name="options", value=json.dumps(options), size=30, id=f"options-{chosen}"),
                ),
                h("button", "Switch", type="submit", class_="button primary"),
                data_action="switch",
                id="switch",
            )
        return card(
            "Policy",
            form or h("p", "An administrator can choose another one.", class_="soft"),
            self._about(about) if about else None,
            aside=join("now ", mark(INFO, current.policy)),
        )

    @staticmethod
    def _about(policy: PolicyInfo) -> Markup:
        first, _, more = policy.description.partition("\n\n")
        known = policy.options.get("properties", {})
        rows = [
            h(
                "tr",
                h("th", name, scope="row"),
                h("td", json.dumps(one.get("default")), class_="code"),
                h("td", one.get("description", "")),
            )
            for name, one in known.items()
        ]
        listed = table(["Option", "Default", "Meaning"], rows, f"Options of {policy.name}") if rows else None
        detail = h("details", h("summary", "More about it"), h("p", more), listed) if more or rows else None
        return h(
            "div",
            h("p", h("b", "Optimises "), policy.optimises),
            h("p", first),
            detail,
            class_="about",
            data_key=f"about-{policy.name}",
        )

    def _compare(self) -> Markup:
        current = self._topic.current
        assert current is not None
        boxes = [
            h(
                "label",
                h(
                    "input",
                    type="checkbox",
                    name=f"policy-{each.name}",
                    checked=each.name in _SUGGESTED or each.name == current.policy,
                ),
                each.name,
                class_="check",
            )
            for each in self._topic.policies
        ]
        running = self._comparison is not None and self._comparison.running
        form = h(
            "form",
            h("fieldset", h("legend", "Policies"), boxes, data_keep=True),
            h(
                "button",
                "Simulating …" if running else "Compare",
                type="submit",
                class_="button",
                disabled=running,
            ),
            data_action="compare",
            id="compare",
        )
        return card(
            "Compare in the simulator",
            h(
                "p",
                "Takes the running queries with their measured costs and rates, and simulates 5 s of "
                "them under each policy, in a process of its own. Nothing is switched.",
                class_="soft",
            ),
            form,
            self._compared(),
        )

    def _compared(self) -> Markup | None:
        comparison = self._comparison
        if comparison is None:
            return None
        if comparison.running:
            return h(
                "p", "Simulating ", ", ".join(comparison.policies), " …", role="status", aria_busy="true"
            )
        if comparison.results is None:
            return h("p", mark(BAD, "failed"), " ", comparison.failed, role="alert")
        names = [
            each.name
            for each in self._topic.classes
            if any(each.name in one["classes"] for one in comparison.results.values())
        ]
        rows = [h("tr", h("th", "measured now", scope="row"), [self._now(name) for name in names], h("td"))]
        best = {
            name: min(
                filter(
                    None, (one["classes"].get(name, {}).get("p95_ms") for one in comparison.results.values())
                ),
                default=None,
            )
            for name in names
        }
        for policy, one in comparison.results.items():
            cells: list[Child] = []
            for name in names:
                value = one["classes"].get(name, {}).get("p95_ms")
                star = " ★" if value is not None and value == best[name] else ""
                cells.append(h("td", numbers.milliseconds(value), star, class_="number"))
            rows.append(
                h(
                    "tr",
                    h("th", policy, scope="row"),
                    cells,
                    h("td", self._switch(policy)),
                    data_key=f"compared-{policy}",
                )
            )
        head: list[Child] = ["p95 latency", *(f"#{name}" for name in names), ""]
        return h(
            "div",
            table(head, rows, "Predicted latency per class"),
            h(
                "p",
                "★ lowest. Predictions rank policies; their values leave out what happens outside of "
                "the engine.",
                class_="soft",
            ),
            id="compared",
        )

    def _now(self, name: str) -> Markup:
        history = self._overview.histories.get(name)
        return h(
            "td",
            numbers.milliseconds(history.latency.percentiles[95].last if history else None),
            class_="number",
        )

    def _switch(self, policy: str) -> Markup | None:
        current = self._topic.current
        if not self.is_admin or current is None:
            return None
        if policy == current.policy:
            return mark(INFO, "in use")
        return h(
            "button",
            "Switch",
            type="button",
            class_="button small",
            data_action="switch",
            data_policy=policy,
            aria_label=f"Switch to {policy}",
        )


def _options(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except json.JSONDecodeError as error:
        raise ValueError(f"the options are not JSON ({error}): write an object such as {{}}") from None
    if not isinstance(found, dict):
        raise ValueError(f"the options are {text[:40]!r}: write an object such as {{}}")
    return found
