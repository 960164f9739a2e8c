"""The scale of generated tests: small in `make test`, full in `make test-long`."""

from __future__ import annotations

import os

FULL = os.environ.get("MAVSTREAM_TEST_SCALE") == "full"


def scaled(small: int, full: int) -> int:
    """Return how many cases, rows or rounds to run."""
    return full if FULL else small
