"""Alternates of joins with stored tables give the same rows in the same order with the same arrival times."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.support.differential.engine_runs import TRAINS
from tests.support.differential.families.table_joins import NODES, STREAM, TABLE, TableJoinScript, written
from tests.support.plans.rewriting_steps import project, select
from tests.support.scale import scaled

from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.queries import OnError
from mavstream_protocol.typed_plan import StreamShape
from mavstream_server.planning.rewriting import alternates
from mavstream_server.planning.run_options import RunOptions
from mavstream_server.testing import ScriptedStream, ScriptedTable, run_plan
from mavstream_server.testing.streams import parse_fields

STREAMS = {"readings": StreamShape(parse_fields(STREAM))}
TABLES = {"rooms": parse_fields(TABLE)}
ASKED = (
    "id % 3 <> 0",
    "room IS NULL OR room <> 'hall'",
    "label IS NULL",
    "coalesce(length(label), 2) > 1",
    "cap > 20",
    "cap > id OR label = 'a'",
    "cap IS NULL OR id > 3",
    "both IS NULL OR both > 10",
)
ROWS_OF_FIVE = {"kind": "tumbling", "size": 5}


def random_nodes(random: Random, script: TableJoinScript) -> tuple[dict[str, Any], str]:
    """Write a plan with selects above a join with a table, and perhaps a window by rows on top."""
    nodes: dict[str, Any] = {**NODES, "j": script.node}
    root = "j"
    if random.random() < 0.3:
        nodes["again"] = {"op": "source", "stream": "readings"}
        nodes["both"] = {"op": "union", "inputs": ["in", "again"], "order": "time"}
        nodes["j"] = {**script.node, "left": "both"}
    for number in range(random.randint(1, 3)):
        asked = " AND ".join(f"({part})" for part in random.sample(ASKED, random.randint(1, 3)))
        nodes[f"s{number}"] = select(root, asked)
        root = f"s{number}"
        if random.random() < 0.3:
            columns = {name: name for name in ("id", "room", "label", "cap", "both")}
            nodes[f"p{number}"] = project(root, **{**columns, "cap": "coalesce(cap, 7)"})
            root = f"p{number}"
    if random.random() < 0.3:
        compute = {"n": "count(*)", "first": "first(id)", "last": "last(label)"}
        nodes["w"] = {"op": "aggregate", "input": root, "window": ROWS_OF_FIVE, "compute": compute}
        root = "w"
    return nodes, root


def answers(
    plan: Plan, stream: ScriptedStream, table: ScriptedTable, train: int, on_error: OnError
) -> tuple[list[Any], list[int]]:
    nodes = plan.model_dump(mode="json", exclude_none=True)["nodes"]
    options = RunOptions(on_error=on_error)
    run = run_plan(nodes, plan.root, [stream], tables=[table], train=train, options=options)
    rows = run.rows()
    return rows, [int(arrival) for batch in run.sink.batches for arrival in batch.arrival]


@pytest.mark.parametrize("seed", range(scaled(20, 600)))
def test_every_alternate_of_a_join_with_a_table_gives_the_same_answer(seed: int) -> None:
    random = Random(seed)
    script = TableJoinScript.random(random, 100)
    nodes, root = random_nodes(random, script)
    on_error = random.choice(list(OnError))
    plan = Plan.parse({"root": root, "nodes": nodes})
    found = alternates(plan, STREAMS, None, 10, tables=TABLES, on_error=on_error)
    with written(script, random.randrange(1000), small=False) as (stream, table):
        expected = answers(plan, stream, table, 4096, on_error)
        for alternate in found:
            got = answers(alternate.plan, stream, table, random.choice(TRAINS), on_error)
            assert got == expected, "\n".join([*map(str, alternate.steps), repr(alternate.plan)])
