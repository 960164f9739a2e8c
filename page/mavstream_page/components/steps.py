"""The operators of a draft as forms."""

from __future__ import annotations

from mavstream_page.components.fields import fields_shown
from mavstream_page.components.html import Markup, h
from mavstream_page.components.marks import BAD, button, empty, mark, select
from mavstream_page.composer.draft import FIELDS, Draft
from mavstream_page.data.streams import StreamsTopic

_HINTS = {
    "where": "celsius > 30 AND room = 'hall'",
    "compute": "mean = avg(celsius)\nn = count(*)",
    "by": "room, home",
    "window": "tumbling 1s, or hopping 10s 1s",
    "on": "home, room = place",
    "within": "500ms",
    "inputs": "left, right",
}


def step_editor(draft: Draft, known: StreamsTopic, version: int) -> Markup:
    """Return the operators of a draft as forms; `version` grows when their texts are replaced."""
    steps = [_step(draft, known, version, name, op, texts) for name, (op, texts) in draft.steps.items()]
    add = [button(f"+ {op}", "add", kind="small", op=op) for op in FIELDS]
    return h(
        "div",
        steps or empty("Begin with a source: the stream that the query reads."),
        h("div", h("span", "Add", class_="soft"), add, class_="buttons", id="add"),
        class_="steps",
    )


def _step(
    draft: Draft, known: StreamsTopic, version: int, name: str, op: str, texts: dict[str, str]
) -> Markup:
    wrong = name in draft.wrong
    fields = [_field(draft, known, version, name, field, text) for field, text in texts.items()]
    schema = draft.schemas.get(name, ())
    return h(
        "div",
        h(
            "div",
            h("b", name),
            h("span", op, class_="chip") if op != name else None,
            mark(BAD, "see the error") if wrong else None,
            button("Remove", "remove", kind="quiet small", step=name, title=f"Remove {name}"),
            class_="buttons",
        ),
        h("form", fields, data_change="step", data_step=name),
        fields_shown(schema, None) if schema else None,
        class_=f"step {'wrong' if wrong else ''}",
        data_key=f"step-{name}",
    )


def _field(draft: Draft, known: StreamsTopic, version: int, step: str, field: str, text: str) -> Markup:
    label = f"{field} of {step}"
    offered: list[str] | None = None
    if field == "stream":
        offered = list(known.streams)
    elif field == "table":
        offered = list(known.tables)
    elif field in ("input", "left", "right"):
        offered = [name for name in draft.steps if name != step]
    if offered is not None:
        options = [("", "choose"), *((each, each) for each in offered)]
        return h("label", field, select(None, field, options, text, label))
    given: dict[str, str | int] = {
        "name": field,
        "aria_label": label,
        "data_version": version,
        "data_text": text,
        "placeholder": _HINTS.get(field, ""),
        "spellcheck": "false",
    }
    if field in ("compute", "json"):
        return h("label", field, h("textarea", text, rows=2, cols=30, **given), class_="wide")
    return h("label", field, h("input", value=text, size=26, **given))
