"""Websocket subprotocols: the version of the messages, and a token for clients that cannot set headers.

A browser passes both: `new WebSocket(url, ["mavstream.v1", "mavstream.bearer." + base64url(token)])`.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

SUBPROTOCOL = "mavstream.v1"
"""Selected by the server if it is offered."""
TOKEN_SUBPROTOCOL = "mavstream.bearer."
"""Prefix of the subprotocol that carries a token in base64url without padding; never selected."""


def encode_token(token: str) -> str:
    """Return the subprotocol that carries a token."""
    return TOKEN_SUBPROTOCOL + urlsafe_b64encode(token.encode()).decode().rstrip("=")


def decode_token(subprotocol: str) -> str:
    """Return the token of a subprotocol; an empty one, which is never valid, if it is malformed."""
    text = subprotocol.removeprefix(TOKEN_SUBPROTOCOL)
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except ValueError:
        return ""
