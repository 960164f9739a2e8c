"""Snapshots: a query continues in another engine with the same answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.conftest import MakeStream

from mavstream_protocol.schema import FieldType
from mavstream_server.columns.batch import Batch, Mark
from mavstream_server.columns.column import Column
from mavstream_server.engine import snapshot
from mavstream_server.engine.snapshot import SnapshotMismatch
from mavstream_server.testing import ScriptedStream, TickingClock, run_plan

IN = {"in": {"op": "source", "stream": "readings"}}


def aggregate(window: dict[str, Any]) -> dict[str, Any]:
    compute = {
        "n": "count(*)",
        "mean": "avg(x)",
        "kinds": "count(distinct room)",
        "dev": "stddev(x)",
        "mid": "median(x)",
        "high": "quantile(x, 0.9)",
        "top": "max(room)",
        "last": "last(room)",
    }
    return {
        **IN,
        "a": {"op": "aggregate", "input": "in", "by": ["room"], "window": window, "compute": compute},
    }


PLANS: dict[str, dict[str, Any]] = {
    "tumbling": aggregate({"kind": "tumbling", "size": "10ms"}),
    "session": aggregate({"kind": "session", "gap": "2ms"}),
    "hopping": aggregate({"kind": "hopping", "size": "10ms", "hop": "3ms"}),
    "rows": aggregate({"kind": "hopping", "size": 7, "hop": 3}),
    "interval join": {
        **IN,
        "again": {"op": "source", "stream": "readings"},
        "j": {
            "op": "join",
            "left": "in",
            "right": "again",
            "on": [["room", "room"]],
            "within": "2ms",
            "compute": {"room": "l.room", "x": "l.x", "y": "r.x"},
            "order": "time",
        },
    },
    "window join": {
        **IN,
        "again": {"op": "source", "stream": "readings"},
        "j": {
            "op": "join",
            "left": "in",
            "right": "again",
            "on": [["room", "room"]],
            "window": {"kind": "hopping", "size": "4ms", "hop": "2ms"},
            "compute": {"room": "l.room", "x": "l.x", "y": "r.x"},
        },
    },
    "except": {
        **IN,
        "few": {"op": "select", "input": "in", "where": "x > 3"},
        "e": {"op": "except", "left": "in", "right": "few", "window": {"kind": "tumbling", "size": "5ms"}},
    },
    "distinct": {
        **IN,
        "few": {"op": "project", "input": "in", "compute": {"room": "room", "x": "floor(x)"}},
        "d": {"op": "distinct", "input": "few", "window": {"kind": "hopping", "size": "6ms", "hop": "2ms"}},
    },
    "ordered union": {
        **IN,
        "s": {"op": "split", "input": "in", "outputs": {"low": "x < 3", "high": "x > 6"}},
        "u": {"op": "union", "inputs": ["s.high", "s.low"], "order": "time"},
    },
}


def fill(readings: ScriptedStream) -> None:
    random = np.random.default_rng(5)
    times = np.cumsum(random.integers(0, 900, 300))
    rooms = ["hall", "attic", "küche", None]
    rows = [(int(time), rooms[int(random.integers(4))], float(random.integers(0, 100)) / 7) for time in times]
    readings.rows(*rows, frame=13)
    readings.complete()


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("steps", [0, 1, 5, 17, 40, 90])
def test_a_restored_query_gives_the_rest_bit_for_bit(stream: MakeStream, name: str, steps: int) -> None:
    readings = stream("readings", "ts timestamp, room string null, x float", event_time="ts", lateness=300)
    fill(readings)
    nodes, root = PLANS[name], list(PLANS[name])[-1]
    whole = run_plan(nodes, root, [readings], train=20).rows()
    assert whole

    first = run_plan(nodes, root, [readings], train=20, policy_options={"tuples": 9})
    first.engine.run(steps)
    if not first.query.active:
        return
    saved = first.engine.snapshot("q")
    first.engine.run()  # what the first does after the snapshot does not affect the second
    second = run_plan(nodes, root, [readings], train=31, policy="wrr", saved=saved)
    before = first.answers()[: snapshot.decode(saved)["operators"]["#output"]["offset"]]
    answers = before + second.rows()
    if name == "window join":
        assert sorted(answers, key=repr) == sorted(whole, key=repr)
    else:
        assert answers == whole


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("pause", [0, 9, 40])
def test_a_query_is_restored_in_the_midst_of_work_that_is_done_in_pieces(
    stream: MakeStream, name: str, pause: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = stream("readings", "ts timestamp, room string null, x float", event_time="ts", lateness=300)
    fill(readings)
    nodes, root = PLANS[name], list(PLANS[name])[-1]
    whole = run_plan(nodes, root, [readings], train=20).rows()
    monkeypatch.setattr("mavstream_server.columns.pieces.AT_ONCE", 2)
    first = run_plan(nodes, root, [readings], train=20, clock=TickingClock(1_000_000))
    operator = first.query.network.operators[root]
    for _ in range(pause + 1):
        assert first.engine.step()
        while operator.unfinished is None:
            assert first.engine.step(), "the work ended before"
    saved = first.engine.snapshot("q")
    assert operator.unfinished is None
    second = run_plan(nodes, root, [readings], saved=saved)
    before = first.answers()[: snapshot.decode(saved)["operators"]["#output"]["offset"]]
    answers = before + second.rows()
    if name == "window join":
        assert sorted(answers, key=repr) == sorted(whole, key=repr)
    else:
        assert answers == whole


def test_a_snapshot_of_another_plan_is_refused(stream: MakeStream) -> None:
    readings = stream("readings", "ts timestamp, room string null, x float", event_time="ts")
    saved = run_plan(PLANS["tumbling"], "a", [readings]).engine.snapshot("q")
    with pytest.raises(SnapshotMismatch, match="of another plan than query 'q' has"):
        run_plan(PLANS["hopping"], "a", [readings], saved=saved)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: b"nonsense" + data, "not a snapshot"),
        (lambda data: data[:4] + b"\x09" + data[5:], "has version 9, this program reads version 1"),
        (lambda data: data[:-8], "ends in the middle"),
        (lambda data: b"", "not a snapshot"),
    ],
)
def test_bytes_that_are_not_a_snapshot_are_refused_with_a_reason(change: Any, words: str) -> None:
    data = snapshot.encode({"a": np.arange(5)})
    with pytest.raises(SnapshotMismatch, match=words):
        snapshot.decode(change(data))


def test_the_whole_state_of_every_operator_can_be_saved() -> None:
    rows = Batch(
        {
            "s": Column.from_list(FieldType.STRING, ["a", None, "ü", ""]),
            "b": Column.from_list(FieldType.BOOL, [True, False, None, True]),
        },
        4,
        np.arange(4),
        time=np.arange(4) * 10,
        mark=Mark(7, 8, None, True),
    )
    tree = {
        "batch": rows,
        "nothing": None,
        "nested": [{"x": np.float64(1.5)}, [np.array([], dtype=np.int64)]],
    }
    back = snapshot.decode(snapshot.encode(tree))
    assert back["batch"].columns["s"].to_list(FieldType.STRING) == ["a", None, "ü", ""]
    assert back["batch"].columns["b"].to_list(FieldType.BOOL) == [True, False, None, True]
    assert back["batch"].time.tolist() == [0, 10, 20, 30]
    assert back["batch"].position is None
    assert back["batch"].mark == Mark(7, 8, None, True)
    assert back["nested"][0] == {"x": 1.5}
    assert len(back["nested"][1][0]) == 0
