"""Sessions of browsers: which token each of them has given. Tokens stay in this process."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict

COOKIE = "mavstream_page"
_MOST = 1000
_IDLE_S = 12 * 3600.0


class Sessions:
    """Tokens by session; sessions that are not used for twelve hours end."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, tuple[float, str]] = OrderedDict()

    @staticmethod
    def new_id() -> str:
        """Return an id that cannot be guessed."""
        return secrets.token_urlsafe(32)

    def token(self, session: str) -> str | None:
        """Return the token of a session, if it has given one."""
        self._expire()
        held = self._held.get(session)
        if held is None:
            return None
        self._held[session] = (time.monotonic(), held[1])
        self._held.move_to_end(session)
        return held[1]

    def sign_in(self, session: str, token: str) -> None:
        """Remember the token of a session."""
        self._held[session] = (time.monotonic(), token)
        self._held.move_to_end(session)
        while len(self._held) > _MOST:
            self._held.popitem(last=False)

    def sign_out(self, session: str) -> str | None:
        """Forget the token of a session and return it, if no other session holds the same one."""
        held = self._held.pop(session, None)
        if held is None or any(token == held[1] for _, token in self._held.values()):
            return None
        return held[1]

    def _expire(self) -> None:
        oldest = time.monotonic() - _IDLE_S
        while self._held and next(iter(self._held.values()))[0] < oldest:
            self._held.popitem(last=False)
