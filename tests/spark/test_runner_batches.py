"""Micro-batches of the runner: which rows they read and which windows they answer, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from mavstream_protocol import Plan, Schema
from mavstream_protocol.backends import refused_by_runner
from mavstream_protocol.plans.inference import infer
from mavstream_protocol.schema import Field, FieldType
from mavstream_protocol.typed_plan import StreamShape, TypedPlan
from mavstream_spark.runs.batches import MicroBatch, next_batch
from mavstream_spark.runs.frontiers import BEGIN_OF_TIME, END_OF_TIME, Frontiers, gaps_of, needed_times
from mavstream_spark.runs.state import Mark, RunState, StreamEnd, thinned

SHAPE = StreamShape(Schema((Field("at", FieldType.TIMESTAMP), Field("n", FieldType.INT))), "at")
SECOND = 1_000_000
SOURCE = {"op": "source", "stream": "s"}
OTHER = {"op": "source", "stream": "t"}
WINDOW = {"kind": "tumbling", "size": "10s"}


def typed(root: str, **nodes: Any) -> TypedPlan:
    return infer(Plan.parse({"root": root, "nodes": nodes}), {"s": SHAPE, "t": SHAPE}, {})


def counted(window: dict[str, Any] = WINDOW, input_: str = "in") -> dict[str, Any]:
    return {"op": "aggregate", "input": input_, "window": window, "compute": {"n": "count(*)"}}


def end(position: int, seconds: float, latest: float | None = None) -> StreamEnd:
    last = seconds if latest is None else latest
    return StreamEnd(position, int(seconds * SECOND), int(last * SECOND), False)


def begun(**positions: int) -> RunState:
    return RunState.parse({"positions": positions, "gaps": {}})


def reads(batch: MicroBatch, stream: str = "s") -> tuple[int, int, int]:
    return tuple(batch.ranges[stream])


def test_rows_are_read_once_where_each_answers_by_itself() -> None:
    plan = typed("hot", **{"in": SOURCE}, hot={"op": "select", "input": "in", "where": "n > 1"})
    batch = next_batch(plan, begun(s=5), {"s": end(9, 3)})
    assert (reads(batch), batch.answers, batch.needs) == ((5, 5, 9), True, {"s": 9})
    again = next_batch(plan, batch.state, {"s": end(9, 4)})
    assert (reads(again), again.answers) == ((9, 9, 9), False)
    few = next_batch(plan, begun(s=5), {"s": end(100, 3)}, most_rows=10)
    assert (reads(few), few.ends) == ((5, 5, 15), False)


def test_windows_read_again_from_the_first_row_that_an_open_one_can_have() -> None:
    plan = typed("n", **{"in": SOURCE}, n=counted())
    state = next_batch(plan, begun(s=0), {"s": end(4, 3)}).state
    quiet = next_batch(plan, state, {"s": end(8, 9)})
    assert not quiet.answers
    # Rows up to position 8 are before second 10, those up to 12 before second 14.
    state = state.noting({"s": end(8, 9)}).noting({"s": end(12, 9.5, latest=14)})
    closing = next_batch(plan, state, {"s": end(20, 21)})
    assert (closing.answers, reads(closing)) == (True, (0, 4, 20))
    assert closing.needs == {"s": 12}  # second 20 is not in the rows before
    after = next_batch(plan, closing.state, {"s": end(30, 30)})
    assert (after.answers, reads(after)) == (True, (12, 20, 30))


def test_a_window_over_windows_needs_all_windows_inside() -> None:
    plan = typed(
        "all",
        **{"in": SOURCE},
        ten=counted(),
        all={
            "op": "aggregate",
            "input": "ten",
            "window": {"kind": "tumbling", "size": "1m"},
            "compute": {"n": "sum(n)"},
        },
    )
    frontiers = Frontiers.at(plan, {"s": 65 * SECOND})
    # The window that is open ends at 70, and its answer has the time of the microsecond before.
    assert frontiers.reached == {"in": 65 * SECOND, "ten": 65 * SECOND, "all": 70 * SECOND - 1}
    assert needed_times(plan, frontiers) == {"all": None, "ten": 60 * SECOND, "in": 60 * SECOND}
    assert not Frontiers.at(plan, {"s": 119 * SECOND}).closes(plan.nodes["all"], frontiers)
    assert Frontiers.at(plan, {"s": 120 * SECOND}).closes(plan.nodes["all"], frontiers)
    gaps = gaps_of(plan, {"s": 65 * SECOND})
    assert gaps == {"in": 65 * SECOND, "ten": 65 * SECOND, "all": 70 * SECOND - 1}


def test_pairs_need_rows_as_far_back_as_they_reach() -> None:
    near = {
        "op": "join",
        "left": "in",
        "right": "other",
        "on": [["n", "n"]],
        "within": {"before": "2s", "after": "1s"},
        "compute": {"at": "l.at"},
    }
    plan = typed("near", **{"in": SOURCE}, other=OTHER, near=near)
    frontiers = Frontiers.at(plan, {"s": 20 * SECOND, "t": 30 * SECOND})
    assert frontiers.reached["near"] == 20 * SECOND
    assert needed_times(plan, frontiers)["other"] == 17 * SECOND
    state = begun(s=0, t=0)
    batch = next_batch(plan, state, {"s": end(5, 20), "t": end(7, 30)})
    quiet = next_batch(plan, batch.state, {"s": end(5, 21), "t": end(7, 31)})
    assert (batch.answers, quiet.answers) == (True, False)


def test_a_stream_that_has_not_begun_holds_windows_of_a_union() -> None:
    both = {"op": "union", "inputs": ["in", "other"]}
    plan = typed("n", **{"in": SOURCE}, other=OTHER, both=both, n=counted(input_="both"))
    state = begun(s=0, t=0)
    ends = {"s": end(5, 100), "t": StreamEnd(0, BEGIN_OF_TIME, BEGIN_OF_TIME, False)}
    batch = next_batch(plan, state, ends)
    assert batch.after.reached["n"] == BEGIN_OF_TIME
    assert batch.needs == {"s": 0, "t": 0}
    complete = {name: StreamEnd(5, END_OF_TIME, 100 * SECOND, True) for name in ("s", "t")}
    last = next_batch(plan, batch.state, complete)
    assert (last.ends, last.answers, last.needs) == (True, True, {"s": 5, "t": 5})


def test_a_pause_is_a_gap_unless_no_rows_arrived() -> None:
    plan = typed("n", **{"in": SOURCE}, n=counted())
    state = next_batch(plan, begun(s=0), {"s": end(4, 3)}).state
    paused = RunState.parse({**state.json(), "paused": True})
    assert paused.skipping({"s": end(4, 5)}).gaps == {}
    resumed = paused.skipping({"s": end(9, 42, latest=44)})
    assert (resumed.positions, resumed.gaps, resumed.paused) == ({"s": 9}, {"s": 44 * SECOND}, False)
    assert resumed.skipped == {"s": ((4, 9),)}
    batch = next_batch(plan, resumed, {"s": end(12, 55)})
    assert (batch.skipped, batch.gaps["n"]) == ({"s": ((4, 9),)}, 44 * SECOND)
    # Rows from second 50 on are behind those that were skipped.
    assert (batch.needs, batch.state.skipped) == ({"s": 9}, {})


def test_a_state_is_the_same_after_a_restart() -> None:
    plan = typed("n", **{"in": SOURCE}, n=counted())
    state = next_batch(plan, begun(s=3), {"s": end(9, 33)}).state
    assert RunState.parse(state.json()) == state


def test_marks_stay_few_and_keep_the_first() -> None:
    marks: tuple[Mark, ...] = (Mark(0, 0),)
    for position in range(1, 10_000):
        marks = thinned((*marks, Mark(position, position)))
    assert len(marks) < 300
    assert (marks[0], marks[-1]) == (Mark(0, 0), Mark(9_999, 9_999))


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (counted({"kind": "tumbling", "size": 10}), "windows by rows"),
        (counted({"kind": "session", "gap": "1s"}), "sessions"),
        (counted({**WINDOW, "until": "2026-01-01T00:00:00Z"}), "'until'"),
        ({"op": "union", "inputs": ["in", "in2"], "order": "time"}, "'order'"),
    ],
)
def test_what_batches_cannot_answer_is_refused_by_node(node: dict[str, Any], reason: str) -> None:
    more = {"in2": OTHER} if "inputs" in node else {}
    plan = typed("out", **{"in": SOURCE}, **more, out=node)
    (refused,) = refused_by_runner(plan)
    assert refused.startswith("out: ")
    assert reason in refused
