"""Random generators that depend on their purpose, not on the order of calls."""

from __future__ import annotations

import zlib

import numpy as np


def draws(seed: int, purpose: str, *key: int) -> np.random.Generator:
    """Return the generator of a purpose and a key, such as a home and a day."""
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), *key])
