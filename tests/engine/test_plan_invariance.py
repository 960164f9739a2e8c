"""The answer of a plan never depends on frames, trains, policies, interleaving, or where it was restored."""

from __future__ import annotations

import os
from random import Random

import pytest
from tests.support.differential.cases import Case, candidates
from tests.support.differential.comparison import assert_same_answer
from tests.support.differential.engine_runs import random_variants, run_case
from tests.support.differential.interleaving import TooLarge, run_bounded, run_live, run_restored
from tests.support.differential.scripts import Row

FULL = os.environ.get("MAVSTREAM_TEST_SCALE") == "full"
CHUNKS = 60 if FULL else 12
CASES_PER_CHUNK = 10 if FULL else 5
FIRST_SEED = 1_000_000  # other cases than those that are compared with the oracle
EMPTY_EVERY = 10


def bounded_case(seed: int) -> tuple[Case, list[Row]]:
    """Return the case of a seed and the answer of a plain run."""
    for case in candidates(seed):
        try:
            answer = run_bounded(case)
        except TooLarge:
            continue
        if answer or seed % EMPTY_EVERY == 0:
            return case, answer
    raise AssertionError("candidates never end")


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_answer_does_not_depend_on_how_a_plan_is_run(chunk: int) -> None:
    for number in range(CASES_PER_CHUNK):
        seed = FIRST_SEED + chunk * CASES_PER_CHUNK + number
        case, expected = bounded_case(seed)
        random = Random(seed)
        for variant in random_variants(random, 2):
            assert_same_answer(case, expected, run_case(case, variant), str(variant))
        for state in (random.randrange(1 << 30) for _ in range(2)):
            assert_same_answer(case, expected, run_live(case, Random(state)), f"run_live, Random({state})")
            got = run_restored(case, Random(state))
            assert_same_answer(case, expected, got, f"run_restored, Random({state})")
