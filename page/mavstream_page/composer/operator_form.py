"""The form of an operator, with the columns that it reads and gives at hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mavstream_page.components.fields import fields_shown
from mavstream_page.components.html import Markup, h
from mavstream_page.components.marks import BAD, button, mark, select
from mavstream_page.composer.draft import Draft
from mavstream_page.composer.editing import outputs
from mavstream_page.composer.operators import FIELDS, MORE
from mavstream_protocol.streams import FieldSpec

_TITLES = {
    "stream": "Stream",
    "table": "Table",
    "input": "Reads",
    "left": "Left",
    "right": "Right",
    "inputs": "Reads",
    "where": "Condition",
    "compute": "Columns, one per line",
    "outputs": "Outputs, one per line",
    "by": "Group by",
    "on": "Equal columns",
    "within": "Apart at most",
    "window": "Window",
    "size": "Size, or gap",
    "hop": "Hop",
    "how": "Without a match",
    "order": "Order",
    MORE: "Other properties, as JSON",
}
_HINTS = {
    "where": "celsius > 30 AND room = 'hall'",
    "compute": "mean = avg(celsius)\nn = count(*)",
    "outputs": "hot = celsius > 30\ncold = celsius < 5",
    "by": "room, home",
    "size": "1s, or 100 rows",
    "hop": "500ms",
    "on": "home, room = place",
    "within": "500ms",
    "inputs": "left, right",
}
_CHOICES = {
    "window": ("", "tumbling", "hopping", "session"),
    "how": ("", "left"),
    "order": ("", "time"),
}
_NO_CHOICE = {"window": "none", "how": "dropped", "order": "any"}
_WORDS = {"how": {"left": "with nulls"}}
_LONG = frozenset({"compute", "outputs", MORE})
_LISTS = frozenset({"by", "on", "inputs"})
_OPTIONAL = frozenset({"window", "how", "order", "hop", "within", "by", MORE, "on"})


def operator_form(draft: Draft, name: str, sources: Sequence[str], tables: Iterable[str]) -> Markup:
    """Return the form of an operator; `sources` are streams, and queries as `query:NAME`."""
    operator = draft.operators[name]
    texts = operator.texts
    shown = [field for field in (*FIELDS[operator.op], MORE) if _is_shown(field, texts)]
    others = [each for other in draft.operators if other != name for each in outputs(draft.operators, other)]
    offered = {"stream": sources, "table": list(tables), "input": others, "left": others, "right": others}
    fields = [_field(draft, name, field, texts.get(field, ""), offered.get(field)) for field in shown]
    errors = [h("p", mark(BAD, ""), " ", text) for text in draft.errors_of(name)]
    given = draft.reading.schemas.get(name, ())
    return h(
        "div",
        h(
            "header",
            h("h3", name, " ", h("span", operator.op, class_="chip"), class_="operator-name"),
            h(
                "div",
                h(
                    "button",
                    "Connect",
                    type="button",
                    class_="button small",
                    data_connect=True,
                    title=f"Connect {name} to the operator that reads it",
                ),
                button("Remove", "remove", kind="small", node=name, title=f"Remove {name}"),
                class_="buttons",
            ),
        ),
        [_columns_read(draft, field, each) for field, each in operator.reads()],
        h(
            "form",
            fields,
            h(
                "label",
                "Name",
                h(
                    "input",
                    name="name",
                    value=name,
                    size=10,
                    aria_label=f"Name of {name}",
                    data_version=draft.revision,
                    data_text=name,
                ),
            ),
            id="operator-form",
            novalidate=True,
            data_step=name,
            data_key=f"form-{name}",
        ),
        h("div", errors, class_="problem", role="status") if errors else None,
        h("div", h("small", "Gives"), fields_shown(given, None), class_="gives") if given else None,
        class_="operator",
        data_key=f"operator-{name}",
    )


def _is_shown(field: str, texts: dict[str, str]) -> bool:
    if field == "size":
        return bool(texts.get("window"))
    if field == "hop":
        return texts.get("window") == "hopping"
    return field != MORE or MORE in texts


def _columns_read(draft: Draft, field: str, reference: str) -> Markup | None:
    columns = draft.reading.schemas.get(reference.partition(".")[0], ())
    if not columns:
        return None
    prefix = {"left": "l.", "right": "r."}.get(field, "")
    chips = [_column(prefix, each) for each in columns]
    return h("div", h("small", f"{reference} has"), h("div", chips, class_="chips"), class_="gives")


def _column(prefix: str, column: FieldSpec) -> Markup:
    return h(
        "button",
        h("b", f"{prefix}{column.name}"),
        f" {column.type.value}",
        type="button",
        class_="chip",
        data_insert=f"{prefix}{column.name}",
        title=f"Write {prefix}{column.name} into the field",
        aria_label=f"Write {prefix}{column.name} into the field",
    )


def _field(draft: Draft, step: str, field: str, text: str, offered: Sequence[str] | None) -> Markup:
    title, kept = _TITLES[field], _kept(draft, text)
    label = f"{title} of {step}"
    if offered is not None:
        listed = [*offered, *([text] if text and text not in offered else [])]
        options = [("", "choose"), *((each, each.replace("query:", "query ")) for each in listed)]
        return h("label", title, select(None, field, options, text, label, **kept))
    if field in _CHOICES:
        words = {"": _NO_CHOICE[field]} | _WORDS.get(field, {})
        options = [(each, words.get(each, each)) for each in _CHOICES[field]]
        return h("label", title, select(None, field, options, text, label, **kept))
    given = {
        "name": field,
        "aria_label": label,
        "placeholder": _HINTS.get(field, ""),
        "spellcheck": "false",
        "autocapitalize": "off",
        "autocomplete": "off",
        "required": field not in _OPTIONAL,
        "data_expression": "list" if field in _LISTS else "text",
        **{f"data_{key}": value for key, value in kept.items()},
    }
    if field in _LONG:
        rows = max(2, text.count("\n") + 1)
        return h(
            "label", title, h("textarea", text, rows=rows, cols=30, class_="code", **given), class_="wide"
        )
    wide = field == "where"
    return h(
        "label",
        title,
        h("input", value=text, size=26 if wide else 12, class_="code", **given),
        class_="wide" if wide else None,
    )


def _kept(draft: Draft, text: str) -> dict[str, str]:
    """Return what lets the browser keep what is typed until the text changes in another way."""
    return {"version": str(draft.revision), "text": text}
