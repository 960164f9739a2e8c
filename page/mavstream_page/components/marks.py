"""Marks of states: each has a symbol and a word, so that none depends on its colour."""

from __future__ import annotations

from mavstream_page.components.html import Child, Markup, h

GOOD, WARNING, BAD, QUIET, INFO = "good", "warning", "bad", "quiet", "info"
_SYMBOLS = {GOOD: "✓", WARNING: "!", BAD: "✕", QUIET: "○", INFO: "i"}

QUERY_STATES = {
    "running": GOOD,
    "starting": INFO,
    "scheduled": INFO,
    "paused": QUIET,
    "finished": QUIET,
    "stopped": QUIET,
    "failed": BAD,
}
TARGET_STATES = {"kept": GOOD, "at risk": WARNING, "missed": BAD, "unknown": QUIET}
OUTCOMES = {
    "probation": INFO,
    "kept": GOOD,
    "undone": WARNING,
    "relaxed": QUIET,
    "failed": BAD,
    "overruled": QUIET,
    "proposed": INFO,
}


def mark(kind: str, text: str, title: str | None = None) -> Markup:
    """Return a state with its symbol."""
    return h("span", h("i", _SYMBOLS[kind], aria_hidden="true"), text, class_=f"mark {kind}", title=title)


def card(
    title: Child, *content: Child, aside: Child = None, class_: str = "", key: str | None = None
) -> Markup:
    """Return a box with a heading; `aside` stands at its right."""
    head = h("header", h("h2", title), h("div", aside, class_="aside") if aside else None)
    return h("section", head, *content, class_=f"card {class_}".strip(), data_key=key)


def empty(text: str, *more: Child) -> Markup:
    """Return what stands where there is nothing yet: what to do."""
    return h("div", h("p", text), *more, class_="empty")


def button(
    text: str, action: str, *, kind: str = "", confirm: str | None = None, **data: str | bool | None
) -> Markup:
    """Return a button that sends an action with data."""
    given = {name if name in ("disabled", "title") else f"data_{name}": value for name, value in data.items()}
    return h(
        "button",
        text,
        type="button",
        class_=f"button {kind}".strip(),
        data_action=action,
        data_confirm=confirm,
        aria_label=data.get("title"),
        **given,
    )


def select(
    action: str | None, name: str, options: list[tuple[str, str]], value: str, label: str, **data: str
) -> Markup:
    """Return a list to choose from, which sends `action` when it changes."""
    given = {f"data_{key}": text for key, text in data.items()}
    listed = [h("option", text, value=key, selected=key == value) for key, text in options]
    return h("select", listed, name=name, aria_label=label, data_action=action, **given)


def table(head: list[Child], rows: list[Markup], caption: str, class_: str = "") -> Markup:
    """Return a table in a box that scrolls sideways; `rows` are `tr` elements.

    Columns of numbers have a head that begins with `#`, which is not shown.
    """
    top = h("thead", h("tr", [_column(each) for each in head]))
    made = h("table", h("caption", caption, class_="hidden"), top, h("tbody", rows), class_=class_)
    return h("div", made, class_="table-box", tabindex="0", role="region", aria_label=caption)


def _column(title: Child) -> Markup:
    if isinstance(title, str) and title.startswith("#"):
        return h("th", title[1:], scope="col", class_="number")
    return h("th", title, scope="col")
