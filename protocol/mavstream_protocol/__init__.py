"""Types shared by clients and server: schemas, plans, queries, targets, error details and tuple encodings.

Inference needs the SQL parser, so plans are checked with `mavstream_protocol.plans.inference`.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from mavstream_protocol.classes import (
        DEFAULT_CLASS,
        HIGHEST_PRIORITY,
        LOWEST_PRIORITY,
        ClassBody,
        QueryClass,
    )
    from mavstream_protocol.errors import (
        ExpressionError,
        InvalidObject,
        InvalidPlan,
        InvalidSql,
        InvalidTuples,
        MavstreamError,
        Problem,
        ProblemItem,
    )
    from mavstream_protocol.instants import (
        FIRST_INSTANT,
        LAST_INSTANT,
        Instant,
        format_instant,
        parse_instant,
        read_instant,
    )
    from mavstream_protocol.names import NAME_PATTERN, Name
    from mavstream_protocol.plans.hints import Hints
    from mavstream_protocol.plans.plan import (
        AggregateNode,
        DistinctNode,
        ExceptNode,
        InputRef,
        JoinNode,
        Plan,
        PlanNode,
        ProjectNode,
        SelectNode,
        SourceNode,
        SplitNode,
        TableNode,
        UnionNode,
        Within,
    )
    from mavstream_protocol.plans.windows import RowWindow, SessionWindow, TimeWindow
    from mavstream_protocol.qos import (
        EQUAL_WEIGHTS,
        LatencyTarget,
        MemoryTarget,
        ObjectiveWeights,
        QosSpec,
        ThroughputTarget,
    )
    from mavstream_protocol.quantities import (
        Duration,
        NonNegativeDuration,
        NonNegativeSize,
        Percent,
        PositiveCost,
        PositiveDuration,
        PositiveSize,
        Size,
        format_cost,
        format_duration,
        format_percent,
        format_size,
        parse_cost,
        parse_duration,
        parse_percent,
        parse_size,
    )
    from mavstream_protocol.queries import (
        Mode,
        OnError,
        QueryBackend,
        QueryOptions,
        QuerySpec,
        ReadFrom,
        SqlQuerySpec,
    )
    from mavstream_protocol.schema import Field, FieldType, Schema
    from mavstream_protocol.streams import RESERVED_NAMES, DerivedStreamSpec, FieldSpec, Retention, StreamSpec
    from mavstream_protocol.typed_plan import StreamShape, TypedPlan

__all__ = [
    "DEFAULT_CLASS",
    "EQUAL_WEIGHTS",
    "FIRST_INSTANT",
    "HIGHEST_PRIORITY",
    "LAST_INSTANT",
    "LOWEST_PRIORITY",
    "NAME_PATTERN",
    "RESERVED_NAMES",
    "AggregateNode",
    "ClassBody",
    "DerivedStreamSpec",
    "DistinctNode",
    "Duration",
    "ExceptNode",
    "ExpressionError",
    "Field",
    "FieldSpec",
    "FieldType",
    "Hints",
    "InputRef",
    "Instant",
    "InvalidObject",
    "InvalidPlan",
    "InvalidSql",
    "InvalidTuples",
    "JoinNode",
    "LatencyTarget",
    "MavstreamError",
    "MemoryTarget",
    "Mode",
    "Name",
    "NonNegativeDuration",
    "NonNegativeSize",
    "ObjectiveWeights",
    "OnError",
    "Percent",
    "Plan",
    "PlanNode",
    "PositiveCost",
    "PositiveDuration",
    "PositiveSize",
    "Problem",
    "ProblemItem",
    "ProjectNode",
    "QosSpec",
    "QueryBackend",
    "QueryClass",
    "QueryOptions",
    "QuerySpec",
    "ReadFrom",
    "Retention",
    "RowWindow",
    "Schema",
    "SelectNode",
    "SessionWindow",
    "Size",
    "SourceNode",
    "SplitNode",
    "SqlQuerySpec",
    "StreamShape",
    "StreamSpec",
    "TableNode",
    "ThroughputTarget",
    "TimeWindow",
    "TypedPlan",
    "UnionNode",
    "Within",
    "format_cost",
    "format_duration",
    "format_instant",
    "format_percent",
    "format_size",
    "parse_cost",
    "parse_duration",
    "parse_instant",
    "parse_percent",
    "parse_size",
    "read_instant",
]

_MODULES = {
    "mavstream_protocol.classes": (
        "DEFAULT_CLASS",
        "HIGHEST_PRIORITY",
        "LOWEST_PRIORITY",
        "ClassBody",
        "QueryClass",
    ),
    "mavstream_protocol.errors": (
        "ExpressionError",
        "InvalidObject",
        "InvalidPlan",
        "InvalidSql",
        "InvalidTuples",
        "MavstreamError",
        "Problem",
        "ProblemItem",
    ),
    "mavstream_protocol.instants": (
        "FIRST_INSTANT",
        "LAST_INSTANT",
        "Instant",
        "format_instant",
        "parse_instant",
        "read_instant",
    ),
    "mavstream_protocol.names": (
        "NAME_PATTERN",
        "Name",
    ),
    "mavstream_protocol.plans.hints": ("Hints",),
    "mavstream_protocol.plans.plan": (
        "AggregateNode",
        "DistinctNode",
        "ExceptNode",
        "InputRef",
        "JoinNode",
        "Plan",
        "PlanNode",
        "ProjectNode",
        "SelectNode",
        "SourceNode",
        "SplitNode",
        "TableNode",
        "UnionNode",
        "Within",
    ),
    "mavstream_protocol.plans.windows": (
        "RowWindow",
        "SessionWindow",
        "TimeWindow",
    ),
    "mavstream_protocol.qos": (
        "EQUAL_WEIGHTS",
        "LatencyTarget",
        "MemoryTarget",
        "ObjectiveWeights",
        "QosSpec",
        "ThroughputTarget",
    ),
    "mavstream_protocol.quantities": (
        "Duration",
        "NonNegativeDuration",
        "NonNegativeSize",
        "Percent",
        "PositiveCost",
        "PositiveDuration",
        "PositiveSize",
        "Size",
        "format_cost",
        "format_duration",
        "format_percent",
        "format_size",
        "parse_cost",
        "parse_duration",
        "parse_percent",
        "parse_size",
    ),
    "mavstream_protocol.queries": (
        "Mode",
        "OnError",
        "QueryBackend",
        "QueryOptions",
        "QuerySpec",
        "ReadFrom",
        "SqlQuerySpec",
    ),
    "mavstream_protocol.schema": (
        "Field",
        "FieldType",
        "Schema",
    ),
    "mavstream_protocol.streams": (
        "RESERVED_NAMES",
        "DerivedStreamSpec",
        "FieldSpec",
        "Retention",
        "StreamSpec",
    ),
    "mavstream_protocol.typed_plan": (
        "StreamShape",
        "TypedPlan",
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> typing.Any:
    """Import a public name when it is first used: who needs one of them does not wait for all."""
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
