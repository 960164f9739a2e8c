"""Answers, counters and ends of queries do not depend on sharing."""

from __future__ import annotations

from random import Random

import pytest
from tests.support.differential.families.common_prefixes import Course, Outcome, World, random_world
from tests.support.differential.order import is_ordered
from tests.support.scale import scaled

from mavstream_protocol.scheduling import Sharing

CHUNKS = scaled(3, 60)
WORLDS = scaled(8, 40)


def assert_same(world: World, alone: Outcome, shared: Outcome, run: str) -> None:
    assert len(alone.queries) == len(shared.queries), run
    for number, plan in enumerate(alone.plans):
        which = f"query {number} of {run}\n{world.description()}"
        expected, got = alone.answers(number), shared.answers(number)
        left, right = [repr(row) for row in expected], [repr(row) for row in got]
        ordered = is_ordered(plan, plan.root.node)
        assert (left == right) if ordered else (sorted(left) == sorted(right)), which
        assert alone.metrics(number) == shared.metrics(number), which


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_answers_do_not_depend_on_sharing(chunk: int) -> None:
    found = 0
    for number in range(WORLDS):
        seed = 7000 + chunk * WORLDS + number
        world, course = random_world(seed), Random(seed).randrange(1 << 30)
        alone = Course(world, course, Sharing.OFF).run()
        assert alone.shared == 0
        for mode in (Sharing.CLASS, Sharing.ALL):
            shared = Course(world, course, mode).run()
            assert_same(world, alone, shared, f"seed {seed}, course {course}, sharing {mode}")
            found += shared.shared
    assert found, "nothing was shared at all"
