"""Hints: what a client declares of an operator's cost and selectivity, used until they are measured."""

from __future__ import annotations

import sys
from typing import Annotated

from pydantic import BaseModel, ConfigDict, WithJsonSchema

from mavstream_protocol.explained import explained
from mavstream_protocol.quantities import PositiveCost, PositiveSize


def _above_zero(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"selectivity must be a number, and a value of type {type(value).__name__} came")
    if not 0 < value <= sys.float_info.max:
        raise ValueError(
            f"selectivity must be a finite number above zero, and {str(value)[:40]} came: "
            "write rows out per row in, such as 0.25, or more than 1 for a join"
        )
    return float(value)


class Hints(BaseModel):
    """What is expected of an operator. Hints never change an answer, and count as nothing where plans are
    compared; what is left out takes its default."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
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
    """Time per row that comes in, such as `250ns`."""
    size: PositiveSize | None = None
    """Bytes of a row that comes out, such as `40B`."""
