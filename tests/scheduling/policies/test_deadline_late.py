"""Deadline for late units: by class and age, and nobody starves."""

from __future__ import annotations

import pytest
from tests.support.scheduling.deadline import MS, US, add, network, order

from mavstream_server.testing import ScriptedNetwork


def late(line: ScriptedNetwork, *queries: tuple[str, str]) -> None:
    """Add queries that are late by the time they are first looked at."""
    for id_, class_name in queries:
        add(line, id_, 1 * MS, class_name)
        line.now += 1 * US
    line.now += 50 * MS


def test_late_units_go_by_class_and_then_by_age() -> None:
    line = network()
    line.set_priority("high", 6)
    late(line, ("low 1", "default"), ("high 1", "high"), ("low 2", "default"), ("high 2", "high"))
    assert order(line.run()) == ["high 1", "high 2", "low 1", "low 2"]


def test_a_late_unit_never_delays_what_can_still_be_kept_in_more_important_classes() -> None:
    line = network()
    for class_name, priority in (("high", 6), ("middle", 3), ("low", 1)):
        line.set_priority(class_name, priority)
    late(line, ("late", "middle"))
    for class_name in ("high", "low"):
        add(line, class_name, 500 * MS, class_name)
    assert order(line.run()) == ["high", "late", "low"]
    late(line, ("late again", "middle"))
    add(line, "high again", 500 * MS, "high")
    add(line, "in time", 100 * MS, "middle")
    assert order(line.run()) == ["in time", "high again", "late again"]


def test_a_late_unit_delays_others_of_its_class_by_a_quarter_of_their_slack() -> None:
    for age, expected in ((24, ["late", "in time"]), (26, ["in time", "late"])):
        line = network()
        late(line, ("late", "default"))
        add(line, "in time", 100 * MS)
        line.now += age * MS
        assert order(line.run()) == expected


def test_a_source_may_wait_while_a_class_of_another_priority_is_late() -> None:
    line = network()
    line.set_priority("high", 6)
    important = add(line, "important", None, "high", tuples=0)
    add(line, "late", 5 * MS, "low", tuples=1_000_000)
    leaf = important.operators[0]
    line.step()
    assert line.policy.may_wait(leaf) == 0
    while line.now < 20 * MS:
        line.step()
    assert line.policy.may_wait(leaf) == 10 * MS
    add(line, "other", 5 * MS, "low", tuples=0)
    assert line.policy.may_wait(line.queries["late"].operators[0]) == 0, "not because of its own class"


def test_classes_change_places_with_their_priorities() -> None:
    line = network()
    line.set_priority("a", 6)
    line.set_priority("b", 3)
    late(line, ("of a", "a"), ("of b", "b"))
    line.set_priority("b", 9)
    assert order(line.run()) == ["of b", "of a"]


def flooded(line: ScriptedNetwork, high: int) -> int:
    """Return how long a late query of class low waits while class high could take all the time (ns)."""
    line.set_priority("high", 6)
    late(line, ("low", "low"))
    begin = line.now
    for number in range(high):
        add(line, f"high {number}", 1 * MS, "high", tuples=0)
    while not line.answers["low"]:
        for number in range(high):
            line.arrive(f"high {number}", 200)  # 0.22 ms each
        line.step()
        assert line.now - begin < 1000 * MS, "class low has starved"
    return line.now - begin


def test_no_late_unit_starves_behind_a_more_important_class() -> None:
    turn, priorities = 1.5 * MS, 2
    for high in (1, 20):
        assert flooded(network(), high) <= priorities * (10 * MS + 2 * turn)
    assert flooded(network(patience_us=2000), 20) <= priorities * (2 * MS + 2 * turn)
    assert flooded(network(patience_us=100_000), 20) > 50 * MS


def test_no_late_unit_starves_behind_those_of_its_class_that_are_in_time() -> None:
    line = network()
    late(line, ("late", "default"))
    begin = line.now
    for number in range(3):
        add(line, f"q{number}", 500 * MS, tuples=0)
    while not line.answers["late"]:
        for number in range(3):
            line.arrive(f"q{number}", 200)
        line.step()
        assert line.now - begin <= 13 * MS
    assert begin < line.now


def test_late_classes_have_a_guaranteed_share_of_the_time() -> None:
    line = network()
    for class_name, priority in (("high", 6), ("middle", 3), ("low", 1)):
        line.set_priority(class_name, priority)
        add(line, class_name, 1 * MS, class_name, tuples=200_000)
    line.now += 50 * MS
    while line.answers["high"] < 200_000:
        line.step()
    both = line.answers["middle"] + line.answers["low"]
    assert 1.5 / 11.5 <= both / (both + 200_000) <= 1.5 / 10
    assert line.answers["low"] == pytest.approx(both / 2, rel=0.1)
