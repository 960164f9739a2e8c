"""Pieces: long work on arrays as generators, which stop after each piece so that other work can run.

A generator yields after each piece and returns its result. Until it has finished, the arrays that it reads
must not change.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from mavstream_server.columns.column import Array, Ints

AT_ONCE = 1 << 13
"""Rows or keys that are processed in one piece: the most costly work takes about 0.2 us for each."""

_DIGIT_BITS = 16
_DIGIT = (1 << _DIGIT_BITS) - 1

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that is done in steps, and its result."""


def finished(steps: Steps[T]) -> T:
    """Do all the work and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def one_after_other(works: Iterable[Steps[T]]) -> Steps[list[T]]:
    """Do several works and return their results."""
    results = []
    for work in works:
        results.append((yield from work))  # noqa: PERF401 - a comprehension cannot yield
    return results


def fits(size: int, times: int = 1) -> bool:
    """Return whether so many rows are one piece, or so many times as many as are one."""
    return size <= times * AT_ONCE


def pieces(size: int, most: int | None = None) -> Iterator[slice]:
    """Return the pieces of a range, of at most so many rows each (by default `AT_ONCE`)."""
    most = AT_ONCE if most is None else most
    return (slice(start, min(start + most, size)) for start in range(0, size, most))


def portions(counts: Ints, most: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows whose counts add up to at most so many (by default one piece), or single rows."""
    most = AT_ONCE if most is None else most
    total = int(counts.sum())
    if total <= most:
        yield 0, len(counts)
        return
    totals = counts.cumsum()
    first = 0
    while first < len(counts):
        done = int(totals[first - 1]) if first else 0
        last = max(first + 1, int(totals.searchsorted(done + most, "right")))
        yield first, last
        first = last


def copied(array: Array, capacity: int) -> Steps[Array]:
    """Return a copy of an array with more rows, of which the last ones have no values yet."""
    copy = np.empty((capacity, *array.shape[1:]), dtype=array.dtype)
    for piece in pieces(len(array)):
        copy[piece] = array[piece]
        yield
    return copy


def joined(arrays: Sequence[Array], dtype: type = np.int64) -> Steps[Array]:
    """Return arrays one after the other."""
    whole = np.empty(sum(map(len, arrays)), dtype=arrays[0].dtype if arrays else dtype)
    start = 0
    for array in arrays:
        for piece in pieces(len(array)):
            part = array[piece]
            whole[start : start + len(part)] = part
            start += len(part)
            yield
    return whole


def taken(array: Array, rows: Ints) -> Steps[Array]:
    """Return the values at the given indexes."""
    if fits(len(rows)):
        return array.take(rows, axis=0)
    values = np.empty((len(rows), *array.shape[1:]), dtype=array.dtype)
    for piece in pieces(len(rows)):
        values[piece] = array.take(rows[piece], axis=0)
        yield
    return values


def ordered(values: Ints, order: Ints | None = None) -> Steps[Ints]:
    """Return the order that sorts integers, in which equal ones stay as they are.

    `order` is an order to begin with: sorted by it first, and then by these values, rows are in the order of
    both, the values first.
    """
    if order is not None:
        values = yield from taken(values, order)
    if fits(len(values)):
        found: Ints = values.argsort(kind="stable")
    elif (yield from _in_order(values)):
        found = np.arange(len(values))
    else:
        found = yield from _by_digits(values)
    return found if order is None else (yield from taken(order, found))


def ordered_floats(values: Array) -> Steps[Ints]:
    """Return the order that sorts floats; none is not a number."""
    if fits(len(values)):
        return values.argsort(kind="stable")
    bits = np.empty(len(values), dtype=np.int64)
    for piece in pieces(len(values)):
        some = (values[piece] + 0.0).view(np.int64)  # -0.0 becomes 0.0
        # Negative floats have their sign in the highest bit and are in the reverse order.
        bits[piece] = some ^ ((some >> 63) & np.int64((1 << 63) - 1))
        yield
    return (yield from ordered(bits))


def _in_order(values: Ints) -> Steps[bool]:
    for piece in pieces(len(values)):
        some = values[piece.start : piece.stop + 1]
        if np.count_nonzero(some[1:] < some[:-1]):
            return False
        yield
    return True


def _by_digits(values: Ints) -> Steps[Ints]:
    """Sort by digits of 16 bits, the lowest first: each digit in pieces, which numpy sorts in linear time."""
    size = len(values)
    low, high = int(values.min()), int(values.max())
    base, bits = np.array(low).astype(np.uint64), (high - low).bit_length()
    order: Ints = np.arange(size)
    for shift in range(0, bits, _DIGIT_BITS):
        digits = np.empty(size, dtype=np.uint16)
        counts = np.zeros(_DIGIT + 1, dtype=np.int64)
        for piece in pieces(size):
            some = values.take(order[piece]).view(np.uint64) - base
            digits[piece] = (some >> np.uint64(shift)) & np.uint64(_DIGIT)
            np.add.at(counts, digits[piece], 1)
            yield
        places = np.cumsum(counts) - counts
        following = np.empty_like(order)
        for piece in pieces(size):
            here = digits[piece].argsort(kind="stable")
            sorted_digits = digits[piece].take(here)
            firsts = np.flatnonzero(np.concatenate(([True], sorted_digits[1:] != sorted_digits[:-1])))
            lengths = np.diff(firsts, append=len(here))
            starts = places.take(sorted_digits.take(firsts))
            following[np.repeat(starts - firsts, lengths) + np.arange(len(here))] = order[piece].take(here)
            places[sorted_digits.take(firsts)] += lengths
            yield
        order = following
    return order
