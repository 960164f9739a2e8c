"""Authentication and authorization: bearer tokens with roles.

| role | may |
|---|---|
| `admin` | everything, and alone: remove streams and tables, change classes and the scheduler |
| `client` | register streams and queries, put tables, read results |
| `feeder` | register streams and feed them, put tables |

Every role may read statistics and descriptions. Without tokens everything is allowed; such a server binds
to loopback addresses only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.wire.feed import CloseCode
from mavstream_protocol.wire.subprotocols import SUBPROTOCOL, TOKEN_SUBPROTOCOL, decode_token
from mavstream_server.api.problems import ProblemResponse
from mavstream_server.api.services import services_of
from mavstream_server.core.settings import Role, Settings
from mavstream_server.ingest.producer_session import cut_reason

ANY_ROLE = (Role.CLIENT, Role.FEEDER)


class NotAuthorised(MavstreamError):
    """Raised for a missing or unknown token."""

    code = "not_authorised"
    title = "Who are you?"
    status = 401


class Forbidden(MavstreamError):
    """Raised for a token whose role does not allow the request."""

    code = "forbidden"
    title = "The token does not allow this"
    status = 403


class Auth:
    """Checks tokens against those of the settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def check(self, token: str | None, roles: tuple[Role, ...]) -> Role:
        """Return the token's role if it is one of `roles` or admin; raises NotAuthorised, Forbidden."""
        if not self._settings.tokens:
            return Role.ADMIN
        if token is None:
            raise NotAuthorised("got no token: send the header 'Authorization: Bearer TOKEN'")
        role = self._settings.role_of(token)
        if role is None:
            raise NotAuthorised("the token is not known to this server: ask its operator for one")
        if role is not Role.ADMIN and role not in roles:
            needed = " or ".join(dict.fromkeys((*roles, Role.ADMIN)))
            raise Forbidden(f"this needs a token of role {needed}, got one of role {role}")
        return role


def token_of(connection: HTTPConnection, settings: Settings) -> str | None:
    """Return the token of a request, or None.

    Browsers cannot set headers of websockets, which may therefore pass it as a subprotocol; with
    `--query-token` also as `?token=`.
    """
    kind, _, token = connection.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and token.strip():
        return token.strip()
    if connection.scope["type"] != "websocket":
        return None
    for offered in connection.scope.get("subprotocols", ()):
        if offered.startswith(TOKEN_SUBPROTOCOL):
            return decode_token(offered)
    given = connection.query_params.get("token")
    if given is not None and settings.tokens and not settings.query_token:
        raise NotAuthorised(
            "?token= is not accepted: send 'Authorization: Bearer TOKEN', or the subprotocol "
            f"{TOKEN_SUBPROTOCOL}BASE64URL"
        )
    return given


def is_admin(connection: HTTPConnection, settings: Settings) -> bool:
    """Return whether a request has the token of an administrator; raises NotAuthorised."""
    token = token_of(connection, settings)
    return token is not None and settings.role_of(token) is Role.ADMIN


def require(*roles: Role | str) -> Callable[[HTTPConnection], Awaitable[Role]]:
    """Return a dependency that requires one of the roles or admin; any known token if no role is given."""
    allowed = tuple(map(Role, roles)) or ANY_ROLE

    async def authorised(connection: HTTPConnection) -> Role:
        services = services_of(connection)
        return services.auth.check(token_of(connection, services.settings), allowed)

    return authorised


class KnownTokens:
    """Middleware that rejects requests without a known token before their bodies are read.

    Roles are checked later, by the routes.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self._settings = settings
        self._auth = Auth(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on requests that have a known token, or need none."""
        if scope["type"] == "http" and scope["path"].startswith("/v1/"):
            try:
                self._auth.check(token_of(HTTPConnection(scope), self._settings), ANY_ROLE)
            except MavstreamError as error:
                await ProblemResponse.of(error)(scope, receive, send)
                return
        await self.app(scope, receive, send)


async def admitted(websocket: WebSocket, *roles: Role | str) -> bool:
    """Accept a websocket whose token has one of the roles; otherwise close it with 4401 or 4403."""
    # Browsers require that one of the offered subprotocols is chosen; the one with the token is not repeated.
    offered = websocket.scope.get("subprotocols", ())
    await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
    services = services_of(websocket)
    try:
        token = token_of(websocket, services.settings)
        services.auth.check(token, tuple(map(Role, roles)) or ANY_ROLE)
    except NotAuthorised as error:
        await websocket.close(CloseCode.NOT_AUTHORISED, cut_reason(str(error)))
    except Forbidden as error:
        await websocket.close(CloseCode.FORBIDDEN, cut_reason(str(error)))
    else:
        return True
    return False
