"""Stages and batches: rows that are sent in parts and published at once."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from pydantic import ConfigDict, Field, field_validator

from mavstream_protocol.described import Described
from mavstream_protocol.explained import refusal
from mavstream_protocol.names import Name

_CONFIG = ConfigDict(frozen=True)


class StageInfo(Described):
    """A stage: rows that were sent to a stream and are not published yet."""

    model_config = _CONFIG
    name: str
    rows: int
    bytes: int
    """Bytes on disk."""
    owner: str | None = None
    """The name of the token that sent it; null if it belongs to all."""
    expires: str
    """When it is removed unless it is published before."""


class NewBatch(Described):
    """Stages to be published as one batch of a producer."""

    model_config = _CONFIG
    producer: Name
    sequence: Annotated[int, Field(ge=1, le=(1 << 63) - 1)]
    """Number of the batch: higher than those before, per producer and stream. One that is not is ignored."""
    stages: Annotated[tuple[Name, ...], Field(max_length=10_000)]
    """Names of the stages; their rows are appended in the order of event time, otherwise in this order."""
    end: bool = False
    """Whether the producer sends no more rows, as `end` of `/v1/feed`: it no longer holds the watermark."""

    @field_validator("stages")
    @classmethod
    def _distinct(cls, stages: tuple[str, ...]) -> tuple[str, ...]:
        twice = next((name for name, count in Counter(stages).items() if count > 1), None)
        if twice is not None:
            raise refusal("stages", f"stage '{twice}' is named twice: name each once")
        return stages
