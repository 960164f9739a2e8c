"""What comes of a draft: the answer of admission, a trial on the last rows, and the form that submits it."""

from __future__ import annotations

from collections.abc import Sequence

from mavstream_page.components import numbers
from mavstream_page.components.fields import fields_shown
from mavstream_page.components.html import Markup, h, join
from mavstream_page.components.marks import BAD, GOOD, QUIET, WARNING, button, card, mark, select
from mavstream_page.components.results import result_chart, result_table
from mavstream_page.composer.draft import Draft
from mavstream_protocol import QueryClass
from mavstream_protocol.admission import AdmissionEstimate, Outlook
from mavstream_protocol.wire.trials import TrialResult

TRIED_ROWS = 1000
_OUTLOOKS = {Outlook.YES: GOOD, Outlook.NO: BAD, Outlook.UNKNOWN: QUIET}


def outcome_card(
    draft: Draft, classes: Sequence[QueryClass], trial: TrialResult | None, trying: bool
) -> Markup:
    """Return whether the draft is valid and would be admitted, and what tries and submits it."""
    if draft.ready:
        state = mark(GOOD, "valid")
    else:
        state = mark(BAD, "not valid") if draft.errors else mark(QUIET, "nothing yet")
    answer = draft.reading.schemas.get(draft.answer, ()) if draft.ready else ()
    estimate = draft.validation.admission if draft.validation and draft.ready else None
    return card(
        "Try and submit",
        join(h("h3", "Columns of the answer"), fields_shown(answer, None)) if answer else None,
        _admission(estimate) if estimate else None,
        h(
            "p",
            button(f"Try it on the last {TRIED_ROWS:,} rows", "try", disabled=not draft.ready),
            class_="try",
        ),
        _tried(trial, trying),
        _submission(draft, classes),
        aside=state,
        key="outcome",
    )


def _trier(draft: Draft) -> Markup:
    if draft.plan is not None and draft.plan.queries:
        return h("span", "A query on queries cannot be tried: submit it to see rows.", class_="soft")
    return button(f"Try it on the last {TRIED_ROWS:,} rows", "try", disabled=not draft.ready)


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


def _submission(draft: Draft, classes: Sequence[QueryClass]) -> Markup:
    offered = [(each.name, f"{each.name}, priority {each.priority}") for each in classes]
    return h(
        "form",
        h("label", "Name", h("input", name="name", placeholder="hot_rooms", size=14)),
        h("label", "Class", select(None, "class", offered, "default", "Class of the query")),
        h("label", "p95 latency target", h("input", name="latency", placeholder="none", size=8)),
        h("button", "Submit", type="submit", class_="button primary", disabled=not draft.ready),
        data_action="submit",
        id="submit",
    )


def _tried(trial: TrialResult | None, trying: bool) -> Markup | None:
    if trying:
        return h("p", "Trying it in a process of its own …", role="status", aria_busy="true")
    if trial is None:
        return None
    read = ", ".join(f"{numbers.count(rows)} rows of {stream}" for stream, rows in trial.read.items())
    whole = "" if trial.complete else " It ran out of time before it had read all of them."
    said = f"{numbers.count(trial.results)} answers from {read} in {numbers.duration(trial.seconds)}.{whole}"
    if not trial.rows:
        return h("p", f"{said} Windows that are still open have not answered.", role="status", id="tried")
    return h(
        "div",
        h("p", said, role="status"),
        result_chart(trial.rows, trial.fields),
        result_table(trial.rows, trial.fields, "trial", 8),
        id="tried",
    )
