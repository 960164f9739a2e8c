"""Import and export of a draft: a plan as JSON, or SQL."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

from mavstream_page.components.html import Markup, h
from mavstream_page.components.marks import card
from mavstream_page.composer.draft import Draft
from mavstream_protocol import Plan

_LARGEST = 700_000
"""Bytes of a file that a browser sends."""


def taken_in(draft: Draft, text: str) -> None:
    """Replace a draft by a plan as JSON, alone or in a query, or by SQL; raises ValueError, InvalidPlan."""
    if not text.lstrip().startswith("{"):
        draft.write(text.strip())
        return
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the text is not JSON ({error}): give a plan or SQL") from None
    if "sql" in given and "plan" not in given:
        draft.write(str(given["sql"]))
    else:
        draft.put(Plan.parse(given.get("plan", given)))


def text_of_file(name: str, size: int, content: str) -> str:
    """Return the text of a file that a browser has sent as base64; raises ValueError."""
    if size > _LARGEST:
        raise ValueError(f"{name} has {size:,} bytes: a plan or SQL has at most {_LARGEST:,}")
    try:
        return base64.b64decode(content).decode()
    except ValueError:
        raise ValueError(f"{name} is no text: give a plan as JSON, or SQL") from None


def exchange_card(draft: Draft) -> Markup:
    """Return what imports and exports the draft."""
    file = h(
        "label",
        "Import a plan (JSON) or SQL: choose a file, or drop it here",
        h(
            "input",
            type="file",
            accept=".json,.sql,.txt,application/json",
            data_action="import",
            aria_label="File to import",
        ),
        class_="drop",
        data_drop=True,
    )
    pasted = h(
        "details",
        h("summary", "Paste it"),
        h(
            "form",
            h("label", "Plan as JSON, or SQL", h("textarea", name="text", rows=5, cols=50, class_="code")),
            h("button", "Import", type="submit", class_="button"),
            data_action="import",
            id="import",
        ),
    )
    return card(
        "Import and export", h("div", _downloads(draft), class_="buttons"), file, pasted, key="exchange"
    )


def _downloads(draft: Draft) -> list[Markup]:
    sql = _download("Download SQL", "query.sql", "text/plain", draft.sql) if draft.sql.strip() else None
    plan = None
    if draft.plan is not None:
        text = draft.plan.model_dump_json(indent=2, exclude_none=True, exclude_defaults=True, by_alias=True)
        plan = _download("Download plan", "plan.json", "application/json", text)
    return [each for each in (sql, plan) if each is not None]


def _download(title: str, file: str, kind: str, text: str) -> Markup:
    address = f"data:{kind};charset=utf-8,{quote(text)}"
    return h("a", title, href=address, download=file, class_="button small")
