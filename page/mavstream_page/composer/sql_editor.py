"""The SQL editor: CodeMirror, which the toolkit ships, with this server's names and errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import nicegui
from nicegui import events
from nicegui.element import Element

from mavstream_protocol.errors import ProblemItem

_CODEMIRROR = Path(nicegui.__file__).parent / "elements" / "codemirror" / "dist"

Typed = Callable[[str], Awaitable[None]]
"""Called with the text a moment after somebody typed."""


class SqlEditor(Element, component="sql_editor.js", esm={"nicegui-codemirror": str(_CODEMIRROR)}):
    """An editor that says what was typed, completes names and marks errors."""

    def __init__(self, typed: Typed, run: Callable[[], Awaitable[None]], described_by: str) -> None:
        """`run` is called for Ctrl+Enter; `described_by` is the id of the element that shows errors."""
        super().__init__()
        self._props |= {"text": "", "version": 0, "names": {}, "errors": {}, "described-by": described_by}
        self._edit = 0
        self.classes("sql-editor")

        async def changed(event: events.GenericEventArguments) -> None:
            if isinstance(event.args, dict):
                self._edit = int(event.args["edit"])
                self._props["text"] = str(event.args["text"])
                await typed(self._props["text"])

        self.on("typed", changed)
        self.on("run", run)

    def put(self, text: str) -> None:
        """Replace the text; typing can be undone and this, too."""
        if text != self._props["text"]:
            self._props["text"] = text
            self._props["version"] += 1
            self.update()

    def complete(self, names: Mapping[str, Any]) -> None:
        """Complete these names, as `names_of` gives them."""
        self._set("names", dict(names))

    def mark_errors(self, errors: Sequence[ProblemItem]) -> None:
        """Mark errors with a line and a column in what was typed last, and no others."""
        items = [
            {"line": each.line, "column": each.column, "message": each.detail}
            for each in errors
            if each.line is not None and each.column is not None
        ]
        self._set("errors", {"edit": self._edit, "items": items})

    def _set(self, name: str, value: Any) -> None:
        if self._props[name] != value:
            self._props[name] = value
            self.update()
