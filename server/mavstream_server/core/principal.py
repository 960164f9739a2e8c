"""Principals: who makes a request, and what they may use."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from mavstream_protocol.tokens import Role, TokenQuotas
from mavstream_server.core.errors import Forbidden


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of a token. `name` is None on a server without tokens, where everybody may do everything."""

    name: str | None
    role: Role
    streams: tuple[str, ...] = ("*",)
    classes: tuple[str, ...] = ("*",)
    quotas: TokenQuotas = field(default_factory=TokenQuotas)

    @property
    def is_admin(self) -> bool:
        """Whether everything is allowed."""
        return self.role is Role.ADMIN

    @property
    def uses_all_streams(self) -> bool:
        """Whether no stream is excluded."""
        return self.is_admin or "*" in self.streams

    def may_use_stream(self, name: str) -> bool:
        """Return whether a stream of that name may be created, fed, completed and queried."""
        return self.uses_all_streams or any(fnmatchcase(name, pattern) for pattern in self.streams)

    def may_use_class(self, name: str) -> bool:
        """Return whether queries of the class may be registered."""
        return self.is_admin or any(fnmatchcase(name, pattern) for pattern in self.classes)

    def scope(self, path: str) -> str:
        """Return the scope of idempotency keys: nobody gets the answer to somebody else's request."""
        return path if self.name is None else f"{path} {self.name}"

    def require_stream(self, name: str) -> None:
        """Raise Forbidden unless the stream may be used."""
        if not self.may_use_stream(name):
            raise Forbidden(
                f"token '{self.name}' may not use stream '{name[:64]}', only {_shown(self.streams)}: ask the "
                "operator of the server"
            )

    def require_class(self, name: str) -> None:
        """Raise Forbidden unless queries of the class may be registered."""
        if not self.may_use_class(name):
            raise Forbidden(
                f"token '{self.name}' may not use class '{name}', only {_shown(self.classes)}: choose one of "
                "these, or ask the operator of the server"
            )

    def require_owner(self, what: str, owner: str | None) -> None:
        """Raise Forbidden unless an object of an owner may be changed."""
        if not self.may_change(owner):
            raise Forbidden(
                f"{what} belongs to token '{owner}', and this is token '{self.name}': only its owner and "
                "administrators may do this"
            )

    def may_change(self, owner: str | None) -> bool:
        """Return whether an object of an owner may be changed; one without an owner belongs to all."""
        return self.is_admin or owner is None or owner == self.name


def _shown(patterns: tuple[str, ...]) -> str:
    return " and ".join(f"'{pattern}'" for pattern in patterns[:5])


ANYBODY = Principal(None, Role.ADMIN)
"""Whoever makes requests to a server without tokens."""
