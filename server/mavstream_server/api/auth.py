"""Authentication and authorization: bearer tokens with roles.

| role | may |
|---|---|
| `admin` | everything, and alone: remove streams and tables, change classes and the scheduler |
| `client` | register streams and queries, put tables, read results |
| `feeder` | register streams and feed them, put tables |
| `runner` | read streams, and run queries of other backends: publish their results, report their state |

Every role may read statistics and descriptions. Without tokens everything is allowed; such a server binds
to loopback addresses only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from mavstream_protocol.errors import MavstreamError
from mavstream_protocol.tokens import Role, hash_secret
from mavstream_protocol.wire.feed import CloseCode
from mavstream_protocol.wire.subprotocols import SUBPROTOCOL, TOKEN_SUBPROTOCOL, decode_token
from mavstream_server.api.access.attempts import Attempts
from mavstream_server.api.access.quotas import TokenUsage
from mavstream_server.api.problems import ProblemResponse
from mavstream_server.api.services import services_of
from mavstream_server.core.errors import Forbidden
from mavstream_server.core.principal import ANYBODY, Principal
from mavstream_server.core.settings import Settings
from mavstream_server.ingest.messages import cut_reason

HEALTH = frozenset({"/livez", "/readyz"})
"""Paths that need no token."""
ANY_ROLE = (Role.CLIENT, Role.FEEDER, Role.RUNNER)
_PRINCIPAL = "mavstream.principal"


class NotAuthorised(MavstreamError):
    """Raised for a missing or unknown token."""

    code = "not_authorised"
    title = "Authentication is required"
    status = 401


class Auth:
    """Finds who makes a request by its token, and checks roles."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._principals = settings.principals()
        self._attempts = Attempts(settings.max_wrong_tokens)

    @property
    def guarded(self) -> bool:
        """Whether requests need a token."""
        return self._settings.guarded

    @property
    def principals(self) -> Collection[Principal]:
        """The holders of tokens."""
        return self._principals.values()

    def reload(self) -> None:
        """Read the file of tokens again; raises Refused, and then the tokens stay as they were."""
        self._principals = self._settings.principals()

    def knows(self, principal: Principal) -> bool:
        """Return whether the token of somebody who was identified before is still valid, and the same."""
        return not self.guarded or principal in self._principals.values()

    def identify(self, connection: HTTPConnection) -> Principal:
        """Return who makes a request; raises NotAuthorised."""
        found: Principal | None = connection.scope.get(_PRINCIPAL)
        if found is None:
            found = connection.scope[_PRINCIPAL] = self._find(connection)
        return found

    def check(self, connection: HTTPConnection, roles: tuple[Role, ...]) -> Principal:
        """Return who makes a request, with one of `roles` or admin; raises NotAuthorised, Forbidden."""
        principal = self.identify(connection)
        if not principal.is_admin and principal.role not in roles:
            needed = " or ".join(dict.fromkeys((*roles, Role.ADMIN)))
            raise Forbidden(
                f"this needs a token of role {needed}, got one of role {principal.role}: give another with "
                "--token or MAVSTREAM_TOKEN"
            )
        return principal

    def _find(self, connection: HTTPConnection) -> Principal:
        if not self.guarded:
            return ANYBODY
        token = token_of(connection, query=self._settings.query_token)
        if token is None:
            raise NotAuthorised(
                "got no token: give --token, set MAVSTREAM_TOKEN, or send 'Authorization: Bearer TOKEN'"
            )
        # Found by its hash, so the time that it takes reveals nothing about the tokens.
        digest, address = hash_secret(token), "" if connection.client is None else connection.client.host
        self._attempts.check(address, digest)
        principal = self._principals.get(digest)
        if principal is None:
            self._attempts.wrong(address)
            raise NotAuthorised("the token is not known to this server: check --token and MAVSTREAM_TOKEN")
        self._attempts.right(address, digest)
        return principal


def found_principal(connection: HTTPConnection) -> Principal | None:
    """Return who makes a request, if that was found before."""
    found: Principal | None = connection.scope.get(_PRINCIPAL)
    return found


def token_of(connection: HTTPConnection, *, query: bool) -> str | None:
    """Return the token of a request, or None.

    Browsers cannot set headers of websockets, which may therefore pass it as a subprotocol; if `query` also
    as `?token=`. Raises NotAuthorised.
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
    if given is not None and not query:
        raise NotAuthorised(
            "?token= is not accepted: send 'Authorization: Bearer TOKEN', or the subprotocol "
            f"{TOKEN_SUBPROTOCOL}BASE64URL"
        )
    return given


def require(*roles: Role | str) -> Callable[[HTTPConnection], Awaitable[Principal]]:
    """Return a dependency that requires one of the roles or admin; any known token if no role is given."""
    allowed = tuple(map(Role, roles)) or ANY_ROLE

    async def authorised(connection: HTTPConnection) -> Principal:
        return services_of(connection).auth.check(connection, allowed)

    return authorised


class KnownTokens:
    """Middleware that rejects requests without a known token before their bodies are read.

    It also counts the connections of tokens that have a quota. Roles are checked later, by the routes.
    """

    def __init__(self, app: ASGIApp, auth: Auth, usage: TokenUsage) -> None:
        self.app = app
        self._auth = auth
        self._usage = usage

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on requests that have a known token, or need none."""
        if scope["type"] == "lifespan" or scope["path"] in HEALTH:
            await self.app(scope, receive, send)
            return
        try:
            principal = self._auth.identify(HTTPConnection(scope))
            self._usage.enter(principal)
        except MavstreamError as error:
            if scope["type"] == "http":
                await ProblemResponse.of(error)(scope, receive, send)
            else:
                await _close(WebSocket(scope, receive, send), error)
            return
        try:
            await self.app(scope, receive, send)
        finally:
            self._usage.leave(principal)


async def admitted(websocket: WebSocket, *roles: Role | str) -> Principal | None:
    """Accept a websocket whose token has one of the roles; otherwise close it and return None."""
    try:
        principal = services_of(websocket).auth.check(websocket, tuple(map(Role, roles)) or ANY_ROLE)
    except MavstreamError as error:
        await _close(websocket, error)
        return None
    await _accept(websocket)
    return principal


async def _accept(websocket: WebSocket) -> None:
    # Browsers require that one of the offered subprotocols is chosen; the one with the token is not repeated.
    offered = websocket.scope.get("subprotocols", ())
    await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)


async def _close(websocket: WebSocket, error: MavstreamError) -> None:
    """Accept a websocket and close it with a reason, which browsers do not show of refused handshakes."""
    await _accept(websocket)
    await websocket.close(_CODES.get(getattr(error, "status", 400), 4400), cut_reason(str(error)))


_CODES = {401: CloseCode.NOT_AUTHORISED, 403: CloseCode.FORBIDDEN, 429: CloseCode.TOO_MANY}
