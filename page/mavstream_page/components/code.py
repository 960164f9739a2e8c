"""Code with highlighted key words."""

from __future__ import annotations

import re
from html import escape

from mavstream_page.components.html import Markup, h

_WORDS = re.compile(
    r"\b(SELECT|FROM|WHERE|GROUP|BY|HAVING|JOIN|LEFT|INNER|ON|AS|WITH|UNION|ALL|EXCEPT|AND|OR|NOT|IN|BETWEEN|"
    r"TUMBLE|HOP|SESSION|TABLE|DESCRIPTOR|INTERVAL|DISTINCT|ORDER|CASE|WHEN|THEN|ELSE|END|IS|NULL|SET)\b"
)


def sql_markup(text: str) -> Markup:
    """Return SQL with its key words marked."""
    return Markup(_WORDS.sub(r'<span class="k">\1</span>', escape(text)))


def code_box(text: str) -> Markup:
    """Return a box for code, which scrolls."""
    return h("pre", h("code", text), class_="code", tabindex="0")
