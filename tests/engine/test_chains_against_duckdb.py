"""A plan that is split into queries which read each other gives the rows that DuckDB gives for the whole."""

from __future__ import annotations

import os
from random import Random

import pytest
from tests.support.differential.chains import run_chain, split_case
from tests.support.differential.comparison import difference
from tests.support.differential.oracle import Oracle, answered_case

FULL = os.environ.get("MAVSTREAM_TEST_SCALE") == "full"
CHUNKS = 40 if FULL else 6
CASES_PER_CHUNK = 50 if FULL else 15
RUNS = 4 if FULL else 2


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle()


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_chain_of_queries_answers_as_one_plan_does(chunk: int, oracle: Oracle) -> None:
    split = 0
    for seed in range(chunk * CASES_PER_CHUNK, (chunk + 1) * CASES_PER_CHUNK):
        case, expected = answered_case(oracle, seed)
        for number in range(RUNS):
            random = Random(f"chain {seed} {number}")
            links = split_case(case, random)
            if links is None:
                break
            split += 1
            got = run_chain(case, links, random, unread=random.choice((200, 1 << 20)))
            missing, extra = difference(expected, got)
            plans = "\n".join(
                f"{link.name}: {link.plan.model_dump_json(exclude_none=True)}" for link in links
            )
            report = f"seed {seed} run {number}\nmissing {missing[:5]}\nextra {extra[:5]}\n{plans}"
            assert (missing, extra) == ([], []), f"{report}\n{case.description()}"
    assert split
