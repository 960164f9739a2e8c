"""Asks for a token; it stays on the page's server side."""

from __future__ import annotations

from typing import Any

from mavstream import AsyncClient, MavstreamError, NotAuthorised
from mavstream_page.access.sessions import Sessions
from mavstream_page.components.html import Markup, h
from mavstream_page.components.live import Live
from mavstream_page.data.hub import Hubs


async def show_sign_in(session: str, hubs: Hubs, sessions: Sessions, had_token: bool) -> None:
    """Show the form; `had_token` says whether the session's token has become invalid."""
    url = hubs.of(None).client.url
    note = "The token of this session is no longer valid: enter another one." if had_token else None

    async def act(action: dict[str, Any]) -> None:
        token = str(action.get("token", "")).strip()
        if not token:
            shown.show(_form("Enter a token."))
            return
        try:
            async with AsyncClient(url, token=token, timeout=5.0) as client:
                await client.info()
        except NotAuthorised:
            shown.show(_form("The server does not know this token. Check it, or ask who runs the server."))
        except (MavstreamError, ValueError) as error:
            shown.show(_form(str(error)))
        else:
            sessions.sign_in(session, token)
            shown.reload()

    shown = Live(_form(note), act)


def _form(note: str | None) -> Markup:
    return h(
        "div",
        h("h1", "Sign in"),
        h(
            "p",
            "This server is protected by tokens. Enter one to see what it may do; it is kept by the page's "
            "server for this browser session and is not stored in the browser.",
        ),
        h(
            "form",
            h(
                "label",
                "Token",
                h("input", type="password", name="token", autocomplete="off", autofocus=True, required=True),
            ),
            h("button", "Sign in", type="submit", class_="button primary"),
            data_action="sign-in",
        ),
        h("p", note, role="alert", class_="problem") if note else None,
        h("p", "Tokens are made with ", h("code", "mavstream token create NAME --role client"), "."),
        class_="signin",
        id="main",
    )
