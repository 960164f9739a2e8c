"""Infers the utility expressions of a query, which determine the rows that load shedding drops first."""

from __future__ import annotations

from mavstream_protocol.errors import ExpressionError, InvalidObject, ProblemItem
from mavstream_protocol.expressions.parser import parse_scalar
from mavstream_protocol.expressions.typed import Expression
from mavstream_protocol.plans.graph import unknown
from mavstream_protocol.qos import QosSpec
from mavstream_protocol.schema import FieldType
from mavstream_protocol.typed_plan import TypedPlan, streams_below

_TYPES = (FieldType.INT, FieldType.FLOAT, FieldType.BOOL)


def infer_utility(qos: QosSpec, plan: TypedPlan) -> dict[str, Expression]:
    """Return the utility expressions by stream.

    Each is a number or a condition: rows with the smallest number, or for which it is false, are shed first.
    Raises InvalidObject with pointers such as `qos/worth/readings`.
    """
    shapes = {source.stream: source.schema for source in plan.sources}
    scaled = _scaled_streams(plan)
    found: dict[str, Expression] = {}
    items: list[ProblemItem] = []

    def fail(stream: str, code: str, detail: str) -> None:
        items.append(ProblemItem(pointer=f"qos/worth/{stream}", code=code, detail=detail))

    for stream, text in qos.worth.items():
        if stream not in shapes:
            fail(stream, "unknown_stream", unknown("stream of the plan", stream, list(shapes)))
            continue
        try:
            utility = parse_scalar(text, {field.name: field for field in shapes[stream]})
        except ExpressionError as error:
            fail(stream, error.code, error.detail)
            continue
        if utility.type not in _TYPES:
            fail(
                stream,
                "type_mismatch",
                f"what a row of {stream!r} is worth must be a number or a condition, and {text!r:.80} is "
                f"{utility.type}; compare it with something, or take its length or epoch",
            )
        elif stream in scaled:
            fail(
                stream,
                "not_scalable",
                f"aggregate {scaled[stream]!r} is scaled, which takes rows of {stream!r} that are dropped at "
                "random: those of least worth are not like the others; leave out `worth` or `scaled`",
            )
        found[stream] = utility
    if scaled and qos.max_loss == 1:
        detail = (
            f"aggregate {min(scaled.values())!r} is scaled by the rows that are kept, and all of them may be "
            "dropped; allow less than 100%"
        )
        items.append(ProblemItem(pointer="qos/max_loss", code="not_scalable", detail=detail))
    if items:
        raise InvalidObject(items)
    return found


def _scaled_streams(plan: TypedPlan) -> dict[str, str]:
    """Return the streams that scaled aggregates count rows of, each with one of these aggregates."""
    return {stream: node.name for node in plan.scaled for stream in streams_below(plan.nodes, node.inputs[0])}
