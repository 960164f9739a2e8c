"""Reading tokens: from a setting, or from a file of lines `ROLE:TOKEN` or of JSON with hashes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import SecretStr, ValidationError

from mavstream_protocol.explained import refusal
from mavstream_protocol.model_errors import causes, quoted, sentence
from mavstream_protocol.tokens import Role, TokensFile, hash_secret
from mavstream_server.core.errors import Refused
from mavstream_server.core.principal import Principal

SHORTEST_TOKEN = 16
"""Characters of a token on a server that other machines can reach; shorter ones can be guessed."""


def parse_tokens(parts: Iterable[str]) -> dict[SecretStr, str]:
    """Parse `role:token` entries. Error messages never quote an entry: it may hold a secret."""
    tokens: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        role, colon, token = (piece.strip() for piece in part.strip().partition(":"))
        if not colon or role not in set(Role):
            raise refusal(
                "token_role",
                f"token {number} does not start with a role: write admin:TOKEN, client:TOKEN or feeder:TOKEN",
            )
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise refusal(
                "token_text",
                f"token {number} ({role}) must be one or more printable ASCII characters, no spaces",
            )
        if token in tokens:
            raise refusal("token_twice", f"token {number} ({role}) was given before: use one token per role")
        tokens[token] = role
    return {SecretStr(token): role for token, role in tokens.items()}


def principals_of(tokens: Mapping[SecretStr, Role], *, loopback: bool) -> dict[str, Principal]:
    """Return the holders by the hash of their secret; without names of their own, they are named by role.

    Raises Refused for a token that is too short for a server that other machines can reach.
    """
    for token, role in tokens.items():
        if not loopback and len(token) < SHORTEST_TOKEN:
            raise Refused(
                f"the token of role {role} has {len(token)} characters, and other machines can reach this "
                f"server: use {SHORTEST_TOKEN} or more, such as those of 'mavstream token create'",
                code="short_token",
            )
    return {
        hash_secret(token.get_secret_value()): Principal(role.value, role) for token, role in tokens.items()
    }


def read_tokens(file: Path, *, loopback: bool) -> dict[str, Principal]:
    """Read a file of tokens; returns the holders by the hash of their secret. Raises Refused."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise Refused(f"tokens file '{file}' cannot be read: {reason}") from None
    try:
        found = _hashed(text) if text.lstrip().startswith("{") else _plain(text, loopback)
    except ValidationError as error:
        # Not the input, which may hold a secret.
        items = causes(error.errors(include_url=False, include_input=False))
        reasons = "; ".join(
            f"{'/'.join(map(str, item['loc']))}: {sentence(item, quoted(item, 'the file'), shown=False)}"
            for item in items
        )
        raise Refused(f"tokens file '{file}' is not valid: {reasons}", code="invalid_tokens") from None
    except ValueError as error:
        raise Refused(f"tokens file '{file}' is not valid: {error}", code="invalid_tokens") from None
    if not found:
        raise Refused(
            f"tokens file '{file}' has no token: add one with 'mavstream token create', or a line ROLE:TOKEN"
        )
    return found


def _hashed(text: str) -> dict[str, Principal]:
    tokens = TokensFile.model_validate_json(text).tokens
    return {
        each.sha256: Principal(each.name, each.role, each.streams, each.classes, each.quotas)
        for each in tokens
    }


def _plain(text: str, loopback: bool) -> dict[str, Principal]:
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    tokens = {secret: Role(role) for secret, role in parse_tokens(lines).items()}
    return principals_of(tokens, loopback=loopback)
