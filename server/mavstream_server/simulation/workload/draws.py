"""Values of a workload file: a number, or a distribution to draw it from."""

from __future__ import annotations

from typing import Annotated, Any
from zlib import crc32

import numpy as np
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from mavstream_protocol.described import Described

_CONFIG = ConfigDict(frozen=True, extra="forbid")


class Range(Described):
    """Uniform distribution between two numbers."""

    model_config = _CONFIG
    least: Annotated[float, Field(ge=0)] = Field(alias="from")
    most: Annotated[float, Field(ge=0)] = Field(alias="to")

    def draw(self, random: np.random.Generator) -> float:
        """Return a random value."""
        return float(random.uniform(self.least, self.most))


class Choice(Described):
    """A list of numbers that are used in turn."""

    model_config = _CONFIG
    choose: Annotated[tuple[float, ...], Field(min_length=1)]


class Zipf(Described):
    """k x `scale` for k = 1, ..., `values`, with a probability proportional to k ^ -theta (PRB paper, 4)."""

    model_config = _CONFIG
    zipf: Annotated[float, Field(ge=0)]
    """theta: 0 is uniform; the higher, the more likely are small values."""
    values: Annotated[int, Field(gt=0, le=10_000)] = 100
    scale: Annotated[float, Field(gt=0)] = 1.0

    def draw(self, random: np.random.Generator) -> float:
        """Return a random value."""
        ranks = np.arange(1, self.values + 1)
        weights = ranks**-self.zipf
        return float(random.choice(ranks, p=weights / weights.sum())) * self.scale


def _form(data: Any) -> str | None:
    """Return the form of a value, or None if it is not valid."""
    if isinstance(data, int | float) and not isinstance(data, bool):
        return "number"
    keys = data if isinstance(data, dict) else type(data).model_fields if isinstance(data, BaseModel) else ()
    forms = {"from": "range", "least": "range", "choose": "choice", "zipf": "zipf"}
    return next((form for key, form in forms.items() if key in keys), None)


FORMS = ("number", "range", "choice", "zipf")
"""Names of the forms, which occur in the paths of validation errors but not in files."""
Value = Annotated[
    Annotated[float, Field(ge=0), Tag("number")]
    | Annotated[Range, Tag("range")]
    | Annotated[Choice, Tag("choice")]
    | Annotated[Zipf, Tag("zipf")],
    Discriminator(
        _form,
        custom_error_type="value",
        custom_error_message="expected a number, {from, to}, {choose: [...]} or {zipf, values, scale}",
    ),
]


def draw_value(value: float | Range | Choice | Zipf, seed: int, name: str, index: int) -> float:
    """Return the value for a member of a family: always the same for the same seed, name and index."""
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, Choice):
        return value.choose[index % len(value.choose)]
    return value.draw(np.random.default_rng((seed, crc32(name.encode()), index)))
