"""Streams whose keys and strings never recur, long enough for operators to remove them."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.support.differential.cases import Case
from tests.support.differential.columns import ARRIVAL_BASE, EVENT_TIME, INT, STRING
from tests.support.differential.scripts import Rows, StreamScript

from mavstream_protocol.schema import Field

ROWS = 9_000
FIELDS = (EVENT_TIME, Field("k", INT), Field("label", STRING, True), Field("v", INT, True))
_SOURCE = {"op": "source", "stream": "s0"}
_TUMBLING = {"kind": "tumbling", "size": "50us"}
_HOPPING = {"kind": "hopping", "size": "60us", "hop": "20us"}
_CALLS = {
    "n": "count(*)", "labels": "count(DISTINCT label)", "least": "min(label)", "most": "max(label)",
    "one": "first(label)", "other": "last(label)", "middle": "median(v)", "values": "count(DISTINCT v)",
}  # fmt: skip
_SIDES = {"a": {**_SOURCE}, "b": {**_SOURCE}}
_ODD = {"op": "select", "input": "b", "where": "k % 2 = 1 OR label IS NULL"}
_PAIRS = {"k": "l.k", "label": "r.label", "v": "l.v"}

PLANS: dict[str, dict[str, Any]] = {
    "groups": {"in": _SOURCE, "out": {
        "op": "aggregate", "input": "in", "by": ["label"], "window": _TUMBLING, "compute": _CALLS}},
    "overlapping groups": {"in": _SOURCE, "out": {
        "op": "aggregate", "input": "in", "by": ["k", "label"], "window": _HOPPING, "compute": _CALLS}},
    "values": {"in": _SOURCE, "out": {
        "op": "aggregate", "input": "in", "window": _HOPPING, "compute": _CALLS}},
    "interval join": {**_SIDES, "odd": _ODD, "out": {
        "op": "join", "left": "a", "right": "odd", "on": [["k", "k"], ["label", "label"]],
        "within": "10us", "compute": _PAIRS}},
    "window join": {**_SIDES, "odd": _ODD, "out": {
        "op": "join", "left": "a", "right": "odd", "on": [["label", "label"]], "window": _TUMBLING,
        "compute": _PAIRS}},
    "distinct": {"in": _SOURCE, "few": {
        "op": "project", "input": "in", "compute": {"k": "k", "label": "label"}}, "out": {
        "op": "distinct", "input": "few", "window": _HOPPING}},
    "except": {**_SIDES, "odd": _ODD, "out": {
        "op": "except", "left": "a", "right": "odd", "window": _HOPPING}},
}  # fmt: skip


def ever_new_case(name: str) -> Case:
    """Return a plan over a long stream of ever-new keys, each for some rows, slightly out of order."""
    random = Random(name)
    rows = []
    for number in range(ROWS):
        time = ARRIVAL_BASE + number - random.randrange(4)
        key = number - random.randrange(3)
        label = None if random.random() < 0.05 else f"é{key}"
        rows.append((time, key, label, None if random.random() < 0.1 else number))
    steps = tuple(Rows(tuple(rows[start : start + 700])) for start in range(0, ROWS, 700))
    return Case(name, (StreamScript("s0", FIELDS, EVENT_TIME.name, 2, steps),), PLANS[name], "out")
