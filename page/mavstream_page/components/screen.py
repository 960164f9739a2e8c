"""The frame of every view: navigation, the state of the connection, messages, and its refreshes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from contextlib import suppress
from typing import Any, ClassVar

from nicegui import ui

from mavstream import MavstreamError
from mavstream_page.components.html import Child, Markup, h, join
from mavstream_page.components.live import Live
from mavstream_page.components.marks import BAD, GOOD, QUIET, WARNING, mark
from mavstream_page.data.hub import Hub, Watch

VIEWS = (
    ("/", "Overview"),
    ("/queries", "Queries"),
    ("/compose", "Compose"),
    ("/streams", "Streams"),
    ("/scheduler", "Scheduler"),
)
_SAID_FOR = 8
"""For how many refreshes a message stays."""


class View(ABC):
    """A view: topics that it watches, markup made of them, and actions."""

    path: ClassVar[str]
    title: str

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.screen: Screen

    @property
    @abstractmethod
    def keys(self) -> tuple[Hashable, ...]:
        """The keys of the topics that it watches; they exist in the hub when it is constructed."""

    @abstractmethod
    def render(self) -> Markup:
        """Return its content, from what the topics hold."""

    def build(self) -> None:  # noqa: B027 - most views are markup alone
        """Add elements below the content, for views that need more than markup."""

    def show(self) -> None:  # noqa: B027
        """Refresh the elements that it has built."""

    async def act(self, action: dict[str, Any]) -> None:
        """Do what a viewer asked for; raises MavstreamError or ValueError with the reason if it cannot."""
        raise ValueError(f"this view has no action {action.get('action')!r}: reload the page")

    @property
    def role(self) -> str:
        """The role of the viewer's token."""
        return self.hub.info.role.value if self.hub.info is not None else ""

    @property
    def is_admin(self) -> bool:
        """Whether the viewer may change classes and the scheduler."""
        return self.role == "admin"

    @property
    def is_client(self) -> bool:
        """Whether the viewer may register and change queries."""
        return self.role in ("admin", "client")


class Screen:
    """A view in a browser, refreshed while somebody looks at it."""

    def __init__(self, view: View, signed_in: bool) -> None:
        self._view = view
        self._hub = view.hub
        self._signed_in = signed_in
        self._watch: Watch | None = None
        self._said: tuple[str, Child, int] | None = None
        view.screen = self
        self._top = Live(self._navigation())
        self._banner = Live(Markup(""))
        with ui.element("div").props("id=main tabindex=-1").classes("content"):
            self._main = Live(self._loading(), self.act)
            view.build()
        self._messages = Live(Markup(""), self.act, "messages")
        client = ui.context.client
        client.on_connect(self._connect)
        client.on_disconnect(self._disconnect)
        client.on_delete(self._disconnect)
        self._connect()

    def say(self, kind: str, *text: Child) -> None:
        """Show a message for some seconds."""
        self._said = (kind, join(*text), _SAID_FOR)
        self._show_message()

    def watch_again(self) -> None:
        """Watch what the view watches now."""
        if self._watch is not None:
            self._disconnect()
            self._connect()

    def refresh(self) -> None:
        """Show the current state."""
        self._top.show(self._navigation())
        self._banner.show(self._trouble())
        if self._hub.info is not None:
            self._main.show(self._view.render())
            self._view.show()
        elif self._hub.trouble:
            self._main.show(
                h(
                    "div",
                    h("p", "Nothing was read yet. This page goes on by itself when the server answers."),
                    class_="empty",
                )
            )
        if self._said is not None:
            kind, text, left = self._said
            self._said = (kind, text, left - 1) if left > 1 else None
            self._show_message()

    async def act(self, action: dict[str, Any]) -> None:
        """Let the view do what a viewer asked for, and show the outcome."""
        if action.get("action") == "dismiss":
            self._said = None
            self._show_message()
            return
        try:
            await self._view.act(action)
        except (MavstreamError, ValueError) as error:
            self.say(BAD, str(error))
        else:
            self.refresh()

    def _connect(self) -> None:
        if self._watch is None:
            self._watch = self._hub.watch(self._view.keys, self._changed)

    def _disconnect(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _changed(self) -> None:
        if self._hub.refused is not None:
            # The token is no longer valid: the sign-in page is shown by the server of the page.
            with suppress(RuntimeError):
                self._main.reload()
            self._disconnect()
            return
        self.refresh()

    def _show_message(self) -> None:
        if self._said is None:
            self._messages.show(Markup(""))
            return
        kind, text, _ = self._said
        close = h("button", "Dismiss", type="button", class_="button quiet", data_action="dismiss")
        self._messages.show(
            h("div", mark(kind, ""), h("span", text), close, role="status", class_=f"message {kind}")
        )

    def _trouble(self) -> Markup:
        if self._hub.trouble is None:
            return Markup("")
        return h(
            "div",
            mark(BAD, "Disconnected"),
            h(
                "span",
                "The MavStream server does not answer; numbers below are the last ones read. "
                "This page tries again every second and goes on by itself.",
            ),
            h("details", h("summary", "Reason"), h("p", self._hub.trouble)),
            class_="banner",
            role="alert",
            id="disconnected",
        )

    def _navigation(self) -> Markup:
        links = [
            h("a", text, href=path, aria_current="page" if path == self._view.path else None)
            for path, text in VIEWS
        ]
        info = self._hub.info
        if self._hub.trouble:
            state = mark(BAD, "server lost")
        elif info is None:
            state = mark(QUIET, "connecting")
        else:
            state = mark(GOOD, "live", f"MavStream {info.version}, refreshed every second")
        role = (
            mark(QUIET if info.role != "admin" else WARNING, info.role.value)
            if info and self._signed_in
            else None
        )
        out = h("a", "Sign out", href="/signout", class_="button quiet") if self._signed_in else None
        theme = h(
            "button",
            "◐",
            type="button",
            class_="button quiet",
            id="theme",
            data_theme_toggle=True,
            aria_label="Light or dark colours",
            title="Light or dark colours",
        )
        return h(
            "header",
            h("a", "Skip to content", href="#main", class_="skip"),
            h("a", _LOGO, h("span", "MavStream"), href="/", class_="brand", aria_label="MavStream, overview"),
            h("nav", links, aria_label="Views"),
            h("div", state, role, out, theme, class_="status"),
            class_="top",
        )

    def _loading(self) -> Markup:
        return h("div", h("p", "Reading from the server …"), class_="empty", aria_busy="true")


_LOGO = h(
    "svg",
    h("path", d="M3 17c4 0 4-10 8-10s4 10 8 10", class_="wave a"),
    h("path", d="M3 12c4 0 4-6 8-6s4 6 8 6", class_="wave b"),
    viewBox="0 0 22 22",
    class_="logo",
    aria_hidden="true",
)
