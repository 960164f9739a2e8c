"""Random SQL gives the rows that DuckDB gives for the same text."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest
from tests.support.differential.comparison import difference
from tests.support.differential.engine_runs import finish
from tests.support.differential.scripts import Row
from tests.support.scale import scaled
from tests.support.sql.duckdb_answers import Tables, Unanswerable
from tests.support.sql.random_sql import SqlCase, random_sql_case

from mavstream_protocol.plans.inference import infer
from mavstream_protocol.plans.plan import Plan
from mavstream_protocol.schema import Schema
from mavstream_protocol.sql import Catalog, parse_select
from mavstream_protocol.typed_plan import StreamShape
from mavstream_server.testing import run_plan

CHUNKS, CASES = 4, scaled(10, 500)


@pytest.fixture(scope="module")
def tables() -> Tables:
    return Tables()


def answer(case: SqlCase, plan: Plan) -> list[Row]:
    with tempfile.TemporaryDirectory() as directory:
        streams = [script.write(Path(directory), Random(case.seed)) for script in case.scripts]
        try:
            used = [stream for stream in streams if stream.name in plan.streams]
            run = run_plan(plan.model_dump(mode="json")["nodes"], plan.root, used)
            finish(run)
            return run.answers()
        finally:
            for stream in streams:
                stream.close()


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_sql_agrees(chunk: int, tables: Tables) -> None:
    answered = rows = 0
    for seed in range(chunk * CASES, (chunk + 1) * CASES):
        case = random_sql_case(seed)
        streams = {s.name: StreamShape(Schema(s.fields), s.event_time) for s in case.scripts}
        plan = parse_select(case.sql.ours, Catalog(streams))
        try:
            expected = tables.answer(case, infer(plan, streams).schema)
        except Unanswerable:
            continue
        got = answer(case, plan)
        wrong = difference(expected, got)
        assert wrong == ([], []), f"seed {seed}\n{case.sql.ours}\n{case.sql.theirs}"
        answered += 1
        rows += len(expected)
    assert answered > 0.9 * CASES
    assert rows > CASES
