"""An element of the browser whose markup is rendered here and updated in place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import events
from nicegui.element import Element

from mavstream_page.components.html import Markup

Act = Callable[[dict[str, Any]], Awaitable[None]]
"""Called with the `data-` attributes of what was used, and with the values of a form."""


class Live(Element, component="live.js"):
    """Markup that changes; unchanged markup is not sent again."""

    def __init__(self, markup: Markup, act: Act | None = None, classes: str = "") -> None:
        super().__init__()
        self._props["html"] = markup
        if classes:
            self.classes(classes)
        if act is not None:
            wanted = act

            async def acted(event: events.GenericEventArguments) -> None:
                if isinstance(event.args, dict):
                    await wanted(event.args)

            self.on("action", acted)

    def reload(self) -> None:
        """Load its page again; the security policy would refuse a script that does so."""
        self.client.open(self.client.request.url.path)

    def show(self, markup: Markup) -> None:
        """Show other markup."""
        if self._props["html"] != markup:
            self._props["html"] = markup
            self.update()
