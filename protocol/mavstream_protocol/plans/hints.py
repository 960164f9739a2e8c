"""Hints: the cost, selectivity and row size that a client declares for an operator."""

from __future__ import annotations

import sys
from typing import Annotated

from pydantic import ConfigDict, WithJsonSchema

from mavstream_protocol.described import Described
from mavstream_protocol.explained import explained
from mavstream_protocol.quantities import PositiveCost, PositiveSize


def _above_zero(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"selectivity must be a number, got a value of type {type(value).__name__}")
    if not 0 < value <= sys.float_info.max:
        raise ValueError(
            f"selectivity must be a finite number above zero, got {str(value)[:40]}: "
            "write rows out per row in, such as 0.25, or more than 1 for a join"
        )
    return float(value)


class Hints(Described):
    """Expected cost, selectivity and row size of an operator, used until they are measured.

    Hints never change an answer and are ignored when plans are compared. Omitted values take their defaults.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        json_schema_extra={"examples": [{"selectivity": 0.25, "cost": "250ns", "size": "40B"}]},
    )

    selectivity: (
        Annotated[
            float,
            explained("selectivity", _above_zero),
            WithJsonSchema({"type": "number", "exclusiveMinimum": 0}),
        ]
        | None
    ) = None
    """Rows out per row in, above zero; more than 1 is possible for joins."""
    cost: PositiveCost | None = None
    """Time per input row, such as `250ns`."""
    size: PositiveSize | None = None
    """Bytes per output row, such as `40B`."""
