"""The C library's allocator, set up for operators that allocate the arrays of one batch after the other."""

from __future__ import annotations

import ctypes
from contextlib import suppress

# Options of glibc's `mallopt`, from malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT = 32 << 20  # bytes: many times the arrays of a train


def keep_freed_memory() -> None:
    """Let the allocator keep some freed memory for the next arrays instead of returning it to the system.

    By default glibc returns arrays from 128 kB on, so that every batch of some thousand rows would cost page
    faults that take longer than the computation. Does nothing with other C libraries.
    """
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _KEPT)
        mallopt(_TRIM_THRESHOLD, _KEPT)


def return_freed_memory() -> None:
    """Return the freed memory that the allocator keeps to the system; takes up to some milliseconds.

    Does nothing with other C libraries than glibc.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
