"""Join order: changes the order of two joins over the same window, so that fewer pairs are formed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mavstream_protocol.expressions.typed import Expression, references
from mavstream_protocol.plans.plan import JoinNode
from mavstream_protocol.schema import Field, FieldType
from mavstream_server.planning.rewriting.editing import Draft
from mavstream_server.planning.rewriting.expressions import conjunction, renamed
from mavstream_server.planning.rewriting.rule import Rewrite, RewriteRule
from mavstream_server.planning.rewriting.subject import Subject
from mavstream_server.planning.rewriting.texts import text_of
from mavstream_server.planning.rewriting.three_way import BOUNDS, ThreeWay, inputs_read, three_ways

Columns = Mapping[str, Field]
_MAX_KEYS = 16
"""The most keys that a join may have."""


def rewrites(subject: Subject) -> Iterator[Rewrite]:
    """Join the third input with one of the other two first; `three_ways` lists the preconditions.

    The two inputs that are joined first must have a pair of equal columns, so that no cross product is
    formed; and one pair per set of equal columns must be sufficient.
    """
    for found in three_ways(subject):
        if not found.simple():
            continue
        for first in ("0", "1"):
            plan = _reordered(subject, found, first)
            if plan is not None:
                yield plan


def _reordered(subject: Subject, found: ThreeWay, first: str) -> Rewrite | None:
    last = "1" if first == "0" else "0"
    inside = frozenset((first, "2"))
    keys = found.equal_keys(frozenset(first), frozenset("2"))
    if not keys:
        return None
    low = [part for part in found.wheres if inputs_read(part) and inputs_read(part) <= inside]
    high = [part for part in found.wheres if part not in low]
    outer_keys = found.equal_keys(frozenset(last), inside)
    if max(len(keys), len(outer_keys)) > _MAX_KEYS:
        return None
    passed_on = _passed_on([*high, *(e for _, e in found.compute)], [key for _, key in outer_keys], inside)
    names = _names(passed_on or [f"{first}.{subject.schema(found.inputs[int(first)]).names[0]}"])
    fields = _fields(subject, found)
    inner = _join(
        (found.inputs[int(first)], found.inputs[2]),
        [(left[1], right[1]) for left, right in keys],
        low,
        [(name, column) for column, name in names.items()],
        {first: "l.", "2": "r."},
        fields,
        found,
    )
    above = {f"{last}.{name}": f"l.{name}" for name in subject.schema(found.inputs[int(last)]).names}
    above |= {column: f"r.{name}" for column, name in names.items()}
    above |= {f"w.{bound}": f"r.{bound}" for bound in BOUNDS}
    draft = Draft(subject.plan)
    draft.drop(found.lower)
    lower = draft.fresh(found.lower)
    outer = _outer(found, last, lower, outer_keys, names, high, above, fields)
    if inner is None or outer is None:
        return None
    draft.put(lower, inner)
    draft.put(found.upper, outer)
    joined = " and ".join(found.inputs[int(number)] for number in sorted(inside))
    return Rewrite(draft, found.upper, f"joins {joined} first, then {found.inputs[int(last)]}")


def _passed_on(
    expressions: Sequence[Expression], keys: Sequence[tuple[str, str]], inside: frozenset[str]
) -> list[str]:
    """Return the columns of the inputs of the lower join that are read above it, without duplicates."""
    read = [name for expression in expressions for name in references(expression)]
    read += [f"{number}.{column}" for number, column in keys]
    return [name for name in dict.fromkeys(read) if name.partition(".")[0] in inside]


def _names(columns: Sequence[str]) -> dict[str, str]:
    """Return the names that the lower join gives to the columns that it emits."""
    names: dict[str, str] = {}
    for column in columns:
        plain = column.partition(".")[2]
        name, number = plain, 2
        while name in names.values() or name in BOUNDS:
            name, number = f"{plain[:60]}_{number}", number + 1
        names[column] = name
    return names


def _fields(subject: Subject, found: ThreeWay) -> dict[str, Field]:
    fields = {
        f"{number}.{field.name}": field
        for number, reference in enumerate(found.inputs)
        for field in subject.schema(reference)
    }
    return fields | {f"w.{bound}": Field(bound, FieldType.TIMESTAMP) for bound in BOUNDS}


def _join(
    inputs: tuple[str, str],
    on: Sequence[tuple[str, str]],
    parts: Sequence[Expression],
    compute: Sequence[tuple[str, str]],
    prefixes: Mapping[str, str],
    fields: Columns,
    found: ThreeWay,
) -> JoinNode | None:
    def side(name: str) -> str:
        number, _, column = name.partition(".")
        return prefixes[number] + column

    columns = {side(name): field for name, field in fields.items() if name.partition(".")[0] in prefixes}
    where = text_of(renamed(conjunction(parts), side), columns) if parts else None
    if parts and where is None:
        return None
    texts = {name: f'{side(column)[:2]}"{side(column)[2:]}"' for name, column in compute}
    return _window_join(inputs, on, where, texts, found)


def _outer(
    found: ThreeWay,
    last: str,
    lower: str,
    keys: Sequence[tuple[tuple[str, str], tuple[str, str]]],
    names: Mapping[str, str],
    parts: Sequence[Expression],
    above: Mapping[str, str],
    fields: Columns,
) -> JoinNode | None:
    columns = {given: fields[name] for name, given in above.items()}
    where = text_of(renamed(conjunction(parts), above.__getitem__), columns) if parts else None
    texts = {
        column: text_of(renamed(expression, above.__getitem__), columns)
        for column, expression in found.compute
    }
    if (parts and where is None) or None in texts.values():
        return None
    on = [(left[1], names[f"{right[0]}.{right[1]}"]) for left, right in keys]
    compute = {column: str(text) for column, text in texts.items()}
    return _window_join((found.inputs[int(last)], lower), on, where, compute, found)


def _window_join(
    inputs: tuple[str, str],
    on: Sequence[tuple[str, str]],
    where: str | None,
    compute: Mapping[str, str],
    found: ThreeWay,
) -> JoinNode:
    left, right = inputs
    return JoinNode(
        op="join",
        left=left,
        right=right,
        on=tuple(on),
        window=found.window,
        where=where,
        compute=dict(compute),
    )


RULE = RewriteRule(
    "join order",
    "Changes the order of two unordered joins over the same non-overlapping window by time.",
    rewrites,
)
