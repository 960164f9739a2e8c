"""Quality-of-service targets of a query: latency, memory, throughput and their weights."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any

from pydantic import (
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    TypeAdapter,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from mavstream_protocol.described import Described
from mavstream_protocol.explained import explained, refusal
from mavstream_protocol.names import Name
from mavstream_protocol.quantities import (
    Percent,
    PositiveDuration,
    PositiveSize,
    format_duration,
    format_percent,
)

_CONFIG = ConfigDict(frozen=True, extra="forbid")
_SHORT = re.compile(r"p([0-9]+(?:\.[0-9]+)?)")
_HOW = 'give exactly one of {"mean": "10ms"}, {"p95": "50ms"} or {"percentile": 95, "at_most": "50ms"}'

# The default in the description is the text that clients write, not the fraction it is held as.
Tolerance = Annotated[Percent, Field(json_schema_extra={"default": "10%"})]


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"this must be a number, got a value of type {type(value).__name__}")
    if not 0 <= value <= sys.float_info.max:
        raise ValueError(f"this must be a finite number of zero or more, got {str(value)[:40]}")
    return float(value)


NonNegative = Annotated[float, explained("number", _number), WithJsonSchema({"type": "number", "minimum": 0})]


class LatencyTarget(Described):
    """Limits the time from the row that makes a result possible to the result.

    Written `{"mean": "10ms"}`, `{"p95": "50ms", "tolerance": "10%"}` or, for any percentile, `{"percentile":
    99.9, "at_most": "50ms"}`.
    """

    model_config = _CONFIG

    percentile: NonNegative | None = None
    """Above 0 and below 100; None selects the mean."""
    at_most: PositiveDuration
    """The highest latency that meets the target, in microseconds."""
    tolerance: Tolerance = 0.1
    """How far the latency may exceed the target before the optimizer acts."""

    @model_validator(mode="before")
    @classmethod
    def _from_short_form(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        named = [key for key in value if key == "mean" or _SHORT.fullmatch(str(key))]
        general = "at_most" in value or "percentile" in value
        if len(named) + general != 1:
            got = ", ".join(map(str, value)) or "nothing"
            raise refusal("latency_form", f"latency target has {got}: {_HOW}")
        if general:
            return cls._general(value)
        (key,) = named
        rest = {other: value[other] for other in value if other != key}
        return {"percentile": None if key == "mean" else float(key[1:]), "at_most": value[key], **rest}

    @staticmethod
    def _general(value: Mapping[str, Any]) -> Mapping[str, Any]:
        for key in ("percentile", "at_most"):
            if key not in value:
                raise refusal("latency_form", f"latency target lacks '{key}': {_HOW}")
        return value

    @model_validator(mode="after")
    def _percentile_exists(self) -> LatencyTarget:
        if self.percentile is not None and not 0 < self.percentile < 100:
            raise refusal(
                "percentile",
                f"latency percentile {self.percentile:g} is not above 0 and below 100: "
                "write for example p95, or p99.9",
            )
        return self

    @property
    def statistic(self) -> str:
        """The statistic that is compared with `at_most`: `mean`, `p95`, `p99.9`, ..."""
        return "mean" if self.percentile is None else f"p{_plain(self.percentile)}"

    @model_serializer
    def _short_form(self) -> dict[str, str]:
        return {
            self.statistic: format_duration(self.at_most),
            "tolerance": format_percent(self.tolerance),
        }

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe the forms that clients write, which the normalised fields do not show."""
        duration = TypeAdapter(PositiveDuration).json_schema()
        tolerance = {**TypeAdapter(Percent).json_schema(), "default": "10%"}
        named = ("mean", "p50", "p90", "p95", "p99")
        percentile = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 100}
        return {
            "title": "LatencyTarget",
            "description": f"How soon results follow the row that made them possible: {_HOW}.",
            "type": "object",
            "properties": {
                **dict.fromkeys(named, duration),
                **{"percentile": percentile, "at_most": duration, "tolerance": tolerance},
            },
            "patternProperties": {f"^{_SHORT.pattern}$": duration},
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 3,
            "examples": [{"p95": "50ms", "tolerance": "10%"}, {"percentile": 99.9, "at_most": "200ms"}],
        }


class MemoryTarget(Described):
    """Limits the memory of a query: queued batches, operator state and unread backlog together."""

    model_config = ConfigDict(**_CONFIG, json_schema_extra={"examples": [{"at_most": "64MB"}]})

    at_most: PositiveSize
    """The highest number of bytes that meets the target."""
    tolerance: Tolerance = 0.1
    """How far memory may exceed the target before the optimizer acts."""


class ThroughputTarget(Described):
    """Sets the input rate that a query must sustain."""

    model_config = ConfigDict(**_CONFIG, json_schema_extra={"examples": [{"at_least": 10000}]})

    at_least: NonNegative
    """Input rows per second, above zero, that the query must process while that many are offered."""
    tolerance: Tolerance = 0.1
    """How far throughput may fall below the target before the optimizer acts."""

    @field_validator("at_least")
    @classmethod
    def _above_zero(cls, rate: float) -> float:
        if rate == 0:
            raise refusal("throughput_zero", "throughput target must be above zero rows per second")
        return rate


class ObjectiveWeights(Described):
    """Relative weights of the objectives; only their ratios matter."""

    model_config = ConfigDict(**_CONFIG, json_schema_extra={"examples": [{"latency": 3, "memory": 1}]})

    latency: NonNegative = 0.0
    """Weight of latency, zero or more; 0 if omitted."""
    memory: NonNegative = 0.0
    """Weight of memory, zero or more; 0 if omitted."""
    throughput: NonNegative = 0.0
    """Weight of throughput, zero or more; 0 if omitted."""

    @model_validator(mode="after")
    def _something_counts(self) -> ObjectiveWeights:
        if self.latency + self.memory + self.throughput == 0:
            raise refusal(
                "zero_weights", "weights are all zero: give at least one objective a weight above zero"
            )
        return self


EQUAL_WEIGHTS = ObjectiveWeights(latency=1, memory=1, throughput=1)


class QosSpec(Described):
    """QoS targets of a query; omitted ones are not monitored."""

    model_config = ConfigDict(
        **_CONFIG,
        json_schema_extra={
            "examples": [
                {
                    "latency": {"p95": "50ms", "tolerance": "10%"},
                    "memory": {"at_most": "64MB"},
                    "weights": {"latency": 3, "memory": 1},
                    "max_loss": "1%",
                    "worth": {"readings": "temperature"},
                }
            ]
        },
    )

    latency: LatencyTarget | None = None
    """Latency target."""
    memory: MemoryTarget | None = None
    """Memory target."""
    throughput: ThroughputTarget | None = None
    """Throughput target."""
    weights: ObjectiveWeights = EQUAL_WEIGHTS
    """Weights of the objectives when they conflict; equal if omitted.

    The largest miss, relative to its target and multiplied by its weight, is handled first, and an action is
    retained only if the weighted sum of all misses decreases. No action is taken for a target of weight 0.
    """
    max_loss: Annotated[Percent, Field(json_schema_extra={"default": "0%"})] = 0.0
    """The share of its rows that load shedding may drop, of every 4,096; 0% forbids it."""
    worth: Annotated[dict[Name, str], Field(max_length=64)] = {}
    """Utility of rows by stream: a number or a condition over the stream's fields.

    Rows with the smallest number, or for which the condition is false, are shed first; rows of other streams
    are shed at random.
    """

    @property
    def target_weights(self) -> dict[str, float]:
        """Weights of the query's targets by objective, 1 on average; equal if all weights are 0."""
        given = {
            name: getattr(self.weights, name)
            for name in ("latency", "memory", "throughput")
            if getattr(self, name) is not None
        }
        largest = max(given.values(), default=0.0)
        if not largest:
            return dict.fromkeys(given, 1.0)
        shares = {name: weight / largest for name, weight in given.items()}
        return {name: len(given) * share / sum(shares.values()) for name, share in shares.items()}


def _plain(number: float) -> str:
    """Write 95.0 as 95 and 99.9 as 99.9."""
    return str(int(number)) if number.is_integer() else f"{Decimal(repr(number)):f}"
