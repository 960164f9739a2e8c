"""Random plans over random streams give the rows that DuckDB gives for the equivalent SQL."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from tests.support.differential.coverage import KINDS, kinds_of
from tests.support.differential.engine_runs import Variant, random_variants
from tests.support.differential.families.ever_new_keys import PLANS, ROWS, ever_new_case
from tests.support.differential.oracle import Oracle, answered_case
from tests.support.differential.verdicts import disagreement

FULL = os.environ.get("MAVSTREAM_TEST_SCALE") == "full"
CHUNKS = 80 if FULL else 12
CASES_PER_CHUNK = 40 if FULL else 10
VARIANTS = 4 if FULL else 2
LONG_VARIANTS = (Variant(train=64), Variant(train=4096, policy="wrr", small_segments=True))
# Cases may be spread over processes: one that ran this many must have exercised every kind.
MANY = 1000


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle()


@pytest.fixture(scope="module")
def exercised() -> Iterator[Counter[str]]:
    """Kinds of operators that the cases of this process exercised, printed at the end."""
    counted: Counter[str] = Counter()
    yield counted
    print(f"\n{counted['cases']} cases, {counted['runs']} runs, {counted['rows']} rows expected")
    for kind in sorted(KINDS):
        print(f"  {kind:34} {counted[kind]:6}")
    if counted["cases"] >= MANY:
        assert not [kind for kind in KINDS if not counted[kind]]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_engine_answers_as_duckdb_does(chunk: int, oracle: Oracle, exercised: Counter[str]) -> None:
    for seed in range(chunk * CASES_PER_CHUNK, (chunk + 1) * CASES_PER_CHUNK):
        case, expected = answered_case(oracle, seed)
        exercised.update({"cases": 1, "runs": VARIANTS, "rows": len(expected)})
        exercised.update(kinds_of(case))
        found = disagreement(oracle, case, expected, random_variants(Random(case.seed), VARIANTS))
        assert found is None, found


@pytest.mark.parametrize("name", PLANS)
def test_removing_keys_that_never_recur_changes_no_answer(name: str) -> None:
    oracle = Oracle(most_rows=10 * ROWS)
    case = ever_new_case(name)
    found = disagreement(oracle, case, oracle.answer(case), LONG_VARIANTS)
    assert found is None, found
