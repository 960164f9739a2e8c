"""Tokens: their roles, what they may use, and the file that holds them as hashes.

A file is a JSON object: `{"tokens": [{"name": "roof", "role": "feeder", "sha256": "..."}]}`.
Secrets have 256 random bits, so that a fast hash of them cannot be reversed by guessing.
"""

from __future__ import annotations

import hashlib
import secrets
from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from mavstream_protocol.described import Described
from mavstream_protocol.explained import refusal
from mavstream_protocol.names import Name
from mavstream_protocol.quantities import PositiveSize

Patterns = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=200)], ...], Field(max_length=100)]
"""Names with `*` and `?` as wildcards; one of them must match."""
_CONFIG = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Role(StrEnum):
    """Role of a token: what its holder may do."""

    ADMIN = "admin"
    CLIENT = "client"
    FEEDER = "feeder"
    RUNNER = "runner"


class TokenQuotas(Described):
    """Limits of a token's holder; None for no limit but those of the server."""

    model_config = _CONFIG
    queries: Annotated[int, Field(ge=0)] | None = None
    """Queries that it may own, ended ones included."""
    state: PositiveSize | None = None
    """Bytes of state and queues that its queries may hold together."""
    rows_per_second: Annotated[int, Field(ge=1)] | None = None
    """Rows that it may append per second; it is slowed down, not refused, on a websocket."""
    connections: Annotated[int, Field(ge=1)] | None = None
    """Open requests and websockets."""


class TokenSpec(Described):
    """A token as stored: who holds it, and what it allows. Not the secret itself."""

    model_config = _CONFIG
    name: Name
    """Name of the holder, by which objects are owned."""
    role: Role
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """Hash of the secret, in hexadecimal."""
    streams: Patterns = ("*",)
    """Streams that it may create, feed, complete and query."""
    classes: Patterns = ("*",)
    """Classes that its queries may belong to."""
    quotas: TokenQuotas = TokenQuotas()
    created: str | None = None


class TokensFile(Described):
    """The content of a file of tokens."""

    model_config = _CONFIG
    tokens: tuple[TokenSpec, ...] = ()

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        for what in ("name", "sha256"):
            values = [getattr(token, what) for token in self.tokens]
            twice = next((value for value in values if values.count(value) > 1), None)
            if twice is not None:
                raise refusal("token_twice", f"two tokens have the {what} '{twice}': each needs its own")
        return self


def new_secret() -> str:
    """Return a secret of 256 random bits."""
    return "mavstream_" + secrets.token_urlsafe(32)


def hash_secret(secret: str) -> str:
    """Return the hash by which a secret is stored and found."""
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()
