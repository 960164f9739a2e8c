"""Validators that report in exactly the words of the function that reads the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pydantic import PlainValidator
from pydantic_core import PydanticCustomError

Value = TypeVar("Value")


def refusal(code: str, reason: str) -> PydanticCustomError:
    """Return the error for a validator to raise: a stable code, and words that need no prefix."""
    # The reason is passed as a value, not as the template, because it quotes what the client sent.
    return PydanticCustomError(code, "{reason}", {"reason": reason})


def explained(code: str, read: Callable[[object], Value]) -> PlainValidator:
    """Return a validator that reports the ValueError of `read` under the stable `code`."""

    def validate(value: object) -> Value:
        try:
            return read(value)
        except ValueError as error:
            raise refusal(code, str(error)) from None

    return PlainValidator(validate)
