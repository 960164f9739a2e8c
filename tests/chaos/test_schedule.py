"""The schedule of faults is a pure function of the seed."""

from __future__ import annotations

import pytest
from chaos.failpoints import failpoints
from chaos.schedule import CHANGES, KINDS, make_schedule, variant

from mavstream_server.core.storage.failpoints import parse


def test_a_seed_gives_the_same_rounds_again_and_another_one_gives_others() -> None:
    assert make_schedule(7, 50) == make_schedule(7, 50)
    assert make_schedule(7, 50) != make_schedule(8, 50)
    assert make_schedule(7, 20) == make_schedule(7, 50)[:20]


def test_all_kinds_of_faults_failpoints_and_changes_occur() -> None:
    rounds = make_schedule(6, 3000, seconds=2.0)
    assert {each.fault for each in rounds} == set(KINDS)
    assert {each.change for each in rounds} == {None, *CHANGES}
    armed = [each.failpoint for each in rounds if each.failpoint]
    assert {each.partition("@")[0] for each in armed} == {each.entry for each in failpoints(*variant(6))}
    assert all((each.failpoint is not None) == (each.fault == "failpoints") for each in rounds)
    assert all(0.4 <= each.feed_s <= 3.6 for each in rounds)
    for each in armed:
        assert parse(each), "the server can read it"


@pytest.mark.parametrize("only", [(), ("engine",), ("api", "both")])
def test_faults_can_be_chosen(only: tuple[str, ...]) -> None:
    assert {each.fault for each in make_schedule(1, 200, only)} == (set(only) or {None})
