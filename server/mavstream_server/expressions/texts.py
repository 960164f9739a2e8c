"""Text functions as DuckDB defines them, each for one combination of arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from mavstream_protocol.errors import MavstreamError

LONGEST_TEXT = 1 << 20
"""Characters of the longest text that can be computed: a few concatenations must not fill the memory."""
_SUBSTR_MAX = (1 << 32) - 1
_SUBSTR_MIN = -(1 << 32)


def lower(text: str) -> str:
    """Lower-case letter by letter, never changing the number of letters."""
    return text.lower() if text.isascii() else "".join(map(_lower_letter, text))


def upper(text: str) -> str:
    """Upper-case letter by letter, never changing the number of letters."""
    return text.upper() if text.isascii() else "".join(map(_upper_letter, text))


def _lower_letter(letter: str) -> str:
    changed = letter.lower()
    return changed if len(changed) == 1 else changed[0]


def _upper_letter(letter: str) -> str:
    if letter == "ß":
        return "ẞ"
    return next((form for form in (letter.upper(), letter.title()) if len(form) == 1), letter)


def substr(text: str, start: int, length: int | None = None) -> str | None:
    """Return a substring from a position, from 1 or, if negative, from the end; negative lengths go back."""
    if not _SUBSTR_MIN <= start <= _SUBSTR_MAX:
        return None
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else -1
    if length is None:
        return text[max(begin, 0) :]
    if not _SUBSTR_MIN <= length <= _SUBSTR_MAX:
        return None
    end = begin + length
    if length < 0:
        begin, end = end, begin
    return text[max(begin, 0) : max(end, 0)]


def contains(text: str, part: str) -> bool:
    """Return whether a text contains another one."""
    return part in text


def like(text: str, pattern: str, escape: str | None = None) -> bool | None:
    """Match a pattern with % and _; None if it ends with the escape character."""
    matcher = _matcher(pattern, escape)
    return None if matcher is None else matcher(text)


@lru_cache(maxsize=1024)
def _matcher(pattern: str, escape: str | None) -> Callable[[str], bool] | None:
    pieces = _pieces(pattern, escape)
    if pieces is None:
        return None
    compiled = [re.compile(piece, re.DOTALL) for piece in pieces]
    if len(compiled) == 1:
        return lambda text: compiled[0].fullmatch(text) is not None
    return partial(_match_pieces, compiled, _width(pieces[-1]))


def _pieces(pattern: str, escape: str | None) -> list[str] | None:
    """Split at each %; within a piece every character of the pattern matches one character."""
    pieces = [""]
    signs = iter(pattern)
    for sign in signs:
        if sign == escape:
            literal = next(signs, None)
            if literal is None:
                return None
            pieces[-1] += re.escape(literal)
        elif sign == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if sign == "_" else re.escape(sign)
    return pieces


def _width(piece: str) -> int:
    """Return how many characters a piece matches."""
    return len(re.sub(r"\\(.)", r"\1", piece, flags=re.DOTALL))


def _match_pieces(pieces: list[re.Pattern[str]], last_width: int, text: str) -> bool:
    # Pieces have a fixed width, so matching each at its first occurrence is enough: no backtracking, and no
    # pattern takes longer than text length times pattern length.
    head = pieces[0].match(text)
    if head is None:
        return False
    place = head.end()
    for piece in pieces[1:-1]:
        found = piece.search(text, place)
        if found is None:
            return False
        place = found.end()
    start = len(text) - last_width
    return start >= place and pieces[-1].fullmatch(text, start) is not None


class TextTooLong(MavstreamError):
    """A text that is too long to be computed; it fails the query."""

    code = "text_too_long"


def joined(*parts: str) -> str:
    """Concatenate texts; raises TextTooLong."""
    length = sum(map(len, parts))
    if length > LONGEST_TEXT:
        raise TextTooLong(
            f"a text of {length} characters would be computed, at most {LONGEST_TEXT} are possible; "
            "shorten its parts with substr"
        )
    return "".join(parts)


def least(*texts: str | None) -> str | None:
    """Return the first text in order, ignoring nulls."""
    return min((text for text in texts if text is not None), default=None)


def greatest(*texts: str | None) -> str | None:
    """Return the last text in order, ignoring nulls."""
    return max((text for text in texts if text is not None), default=None)


@dataclass(frozen=True, slots=True)
class TextFunction:
    """A function that has texts among its arguments; returns None where it fails, or for null."""

    function: Callable[..., Any]
    fails: str | None = None
    """The error message of rows in which it fails; None if it never fails."""
    strict: bool = True
    """Whether null among the arguments gives null without a call."""


TEXT_FUNCTIONS = {
    "lower": TextFunction(lower),
    "upper": TextFunction(upper),
    "length": TextFunction(len),
    "substr": TextFunction(substr, "substr takes places and lengths below 2**32"),
    "contains": TextFunction(contains),
    "starts_with": TextFunction(str.startswith),
    "like": TextFunction(like, "a LIKE pattern ends with its escape character"),
    "||": TextFunction(joined),
    "concat": TextFunction(joined),
    "least": TextFunction(least, strict=False),
    "greatest": TextFunction(greatest, strict=False),
}
