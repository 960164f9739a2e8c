"""Mutations of bytes and JSON values, chosen by a random number generator."""

from __future__ import annotations

import json
from random import Random
from typing import Any

_NUMBERS = (0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**40, 0.5, 1e308, -0.0, 5e-324)
_TEXTS = (
    *("", " ", "\0", "a" * 65, "a" * 5000, "..", "../../etc/passwd", "%2e%2e%2f", "null", "NaN", "0", "-1"),
    *("1e999", "true", "{}", "[]", "'; --", "${x}", "\u202e", "\u0130", "\U0001f4a5", "e\u0301", "\r\n\r\n"),
    *("1s", "-1s", "999999999999d", "1MiB", "*", "?", "count(*)", "x + ", "(" * 300, "2026-01-01T00:00:00Z"),
)
_MOST_DEPTH = 60


def flip(random: Random, data: bytes) -> bytes:
    """Return bytes with one change: flipped, inserted, removed, repeated or cut."""
    if not data:
        return random.randbytes(random.randrange(1, 9))
    place = random.randrange(len(data))
    end = min(len(data), place + random.randrange(1, 17))
    match random.randrange(6):
        case 0:
            return data[:place] + bytes([data[place] ^ (1 << random.randrange(8))]) + data[place + 1 :]
        case 1:
            return data[:place] + random.randbytes(random.randrange(1, 9)) + data[place:]
        case 2:
            return data[:place] + data[end:]
        case 3:
            return data[:end] + data[place:end] * random.randrange(1, 50) + data[end:]
        case 4:
            return data[:place]
        case _:
            return data[:place] + bytes(end - place) + data[end:]


def changed(random: Random, value: Any) -> Any:
    """Return a JSON value with one change somewhere inside."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        name = random.choice(list(value))
        match random.randrange(8):
            case 0:
                return {key: each for key, each in value.items() if key != name}
            case 1:
                return {**value, strange(random, 1): strange(random)}
            case 2:
                return {strange(random, 1) if key == name else key: each for key, each in value.items()}
            case _:
                return {**value, name: changed(random, value[name])}
    if isinstance(value, list) and value and random.random() < 0.85:
        place = random.randrange(len(value))
        match random.randrange(6):
            case 0:
                return value[:place] + value[place + 1 :]
            case 1:
                return value * random.randrange(2, 20)
            case _:
                return [*value[:place], changed(random, value[place]), *value[place + 1 :]]
    if isinstance(value, str) and value and random.random() < 0.5:
        return flip(random, value.encode()).decode(errors="replace")
    return strange(random)


def strange(random: Random, kind: int | None = None) -> Any:
    """Return a value that hardly anybody expects; kind 1 is a text."""
    match random.randrange(7) if kind is None else kind:
        case 0:
            return random.choice(_NUMBERS)
        case 1:
            return random.choice(_TEXTS)
        case 2:
            return random.choice((None, True, False))
        case 3:
            return [strange(random) for _ in range(random.randrange(4))]
        case 4:
            return {str(strange(random, 1)): strange(random) for _ in range(random.randrange(4))}
        case 5:
            return _nested(random)
        case _:
            return random.randbytes(random.randrange(20)).decode("latin-1")


def encoded(random: Random, value: Any) -> bytes:
    """Return a JSON text, now and then one that is not quite JSON."""
    text = json.dumps(value, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    return flip(random, text) if random.random() < 0.1 else text


def _nested(random: Random) -> Any:
    value: Any = 1
    for _ in range(random.randrange(_MOST_DEPTH)):
        value = [value] if random.random() < 0.5 else {"a": value}
    return value
