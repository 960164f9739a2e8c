"""Priority inversion: the correction modules on given response times, and which of them converge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from mavstream_server.scheduling.mechanisms.inversion.additive import StepwiseRecovery
from mavstream_server.scheduling.mechanisms.inversion.correction import (
    ClassState,
    Inversion,
    all_inversions,
    neighbour_inversions,
)
from mavstream_server.scheduling.mechanisms.inversion.monitor import MODULES, InversionMonitor
from mavstream_server.scheduling.view import Report

FIVE = (50, 40, 30, 20, 10)


def classes(
    responses: Sequence[float | None], frequencies: Sequence[float], priorities: Sequence[int] | None = None
) -> list[ClassState]:
    """Return metrics of classes, by default with the priorities 50, 40 and so on."""
    found = priorities or [10 * index for index in range(len(frequencies), 0, -1)]
    return [ClassState(*states) for states in zip(found, frequencies, responses, strict=True)]


def violated(violator: int, of: int) -> list[float]:
    """Response times in which this class, counted from 1, answers just before the one above it."""
    return [100 * index - (150 if index == violator else 0) for index in range(1, of + 1)]


def corrected(module: str, states: Sequence[ClassState]) -> list[float]:
    instance = MODULES[module]()
    return instance.correct(states, instance.find(states))


# Detection


def test_neighbours_are_inverted_when_the_more_important_answers_later() -> None:
    assert neighbour_inversions(classes([100, 200, 150, 400], [4, 3, 2, 1])) == [Inversion(1, 2)]
    assert neighbour_inversions(classes([100, 100, 100], [3, 2, 1])) == []


def test_classes_of_equal_priority_are_never_inverted() -> None:
    assert neighbour_inversions(classes([300, 100], [2, 2], [5, 5])) == []
    assert all_inversions(classes([300, 100], [2, 2], [5, 5])) == []


def test_a_class_without_answers_is_not_judged() -> None:
    assert neighbour_inversions(classes([None, 200, None, 100], [4, 3, 2, 1])) == [Inversion(1, 3)]


def test_a_class_far_above_is_compared_only_by_modules_that_compare_all() -> None:
    # Class 3 answers before class 1, but not before class 2, its neighbour.
    states = classes([200, 100, 150], [3, 2, 1])
    assert neighbour_inversions(states) == [Inversion(0, 1)]
    assert all_inversions(states) == [Inversion(0, 1), Inversion(0, 2)]


# The dissertation's examples (6.1.5)


@pytest.mark.parametrize(
    ("module", "violator", "before", "after"),
    [
        ("dvp", 3, (50, 40, 30), (50, 40, 29)),
        ("dvp", 3, (60, 20, 1), (60, 21, 1)),
        ("ivp", 3, FIVE, (50, 41, 30, 20, 10)),
        ("dsp", 3, FIVE, (50, 40, 29, 19, 9)),
        ("dsp", 3, (3, 2, 1), (4, 3, 1)),
        ("isp", 3, FIVE, (51, 41, 30, 20, 10)),
    ],
)
def test_examples_of_the_dissertation(
    module: str, violator: int, before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    assert corrected(module, classes(violated(violator, len(before)), before)) == list(after)


def test_dvp_passes_the_loss_on_where_it_would_tie() -> None:
    # The dissertation doubles all and gets (60, 39, 38); the ratio of 2 to 3 is the same without doubling.
    assert corrected("dvp", classes(violated(2, 3), (30, 20, 19))) == [30, 19, 18]


def test_dvp_raises_the_victim_when_no_class_below_can_lose() -> None:
    assert corrected("dvp", classes(violated(2, 3), (3, 2, 1))) == [4, 2, 1]


def test_dvp_does_not_double_priorities_for_a_violator_in_the_middle() -> None:
    # As printed, a violator in the middle doubles everything again and again.
    now: Sequence[float] = (3, 2, 1)
    for _ in range(41):
        now = corrected("dvp", classes(violated(2, 3), now))
    assert now == [44, 2, 1]


def test_ivp_raises_a_class_above_that_it_would_tie_with() -> None:
    assert corrected("ivp", classes(violated(3, 3), (42, 41, 30))) == [43, 42, 30]


def test_dsp_counts_every_violator_above() -> None:
    # Classes 2 and 4 violate: 2 and 3 lose one, 4 and 5 lose two.
    states = classes([200, 100, 300, 250, 400], FIVE)
    assert corrected("dsp", states) == [50, 39, 29, 18, 8]


def test_dsp_leaves_every_class_one_slot() -> None:
    assert corrected("dsp", classes(violated(2, 4), (50, 40, 2, 1))) == [50, 39, 2, 1]


def test_isp_raises_up_to_the_top_class() -> None:
    # Classes 1 and 3 are victims: 2 and 3 gain one, 1 gains two. As printed, class 1 would gain nothing.
    states = classes([200, 100, 300, 250, 400], FIVE)
    assert corrected("isp", states) == [52, 41, 31, 20, 10]


def test_cascade_takes_a_twentieth_from_the_highest_violator_downwards() -> None:
    assert corrected("cascade", classes(violated(3, 5), FIVE)) == [50, 40, 28.5, 19, 9.5]


def test_cascade_gives_back_only_where_there_is_room() -> None:
    cascade = MODULES["cascade"]()
    # Class 2 answers 5 % later than class 1, too close; so class 3 may not get more of its part than class 2.
    close = classes([100, 105, 300], (50, 20, 15), (50, 40, 30))
    assert cascade.recover(close) == [50, 20, 15]
    far = classes([100, 120, 300], (50, 20, 15), (50, 40, 30))
    assert cascade.recover(far) == pytest.approx([50, 20.2, 15.15])


@pytest.mark.parametrize("module", ["dvp", "ivp", "dsp", "isp", "cascade"])
def test_no_module_reverses_the_order_of_the_classes(module: str) -> None:
    now: Sequence[float] = FIVE
    for round_ in range(300):
        responses = [(index * 37 + round_ * 11) % 97 for index in range(5)]
        now = corrected(module, classes(responses, now)) if all_inversions(classes(responses, now)) else now
        assert all(above > below for above, below in pairwise(now))


# The monitor


def watch(module: str = "cascade", limit: float = 10, calm: int = 0) -> InversionMonitor:
    monitor = InversionMonitor(MODULES[module](), limit, calm)
    monitor.assign({"high": 20, "low": 10})
    return monitor


def answer(monitor: InversionMonitor, **responses: int) -> None:
    for name, response in responses.items():
        monitor.record(name, Report(1, 1, 1, answers=2, response=2 * response))


def test_a_window_has_only_answers_since_the_last_one() -> None:
    monitor = watch()
    answer(monitor, high=100, low=50)
    assert monitor.close_window() == (True, True)
    assert monitor.frequency("low") == 9.5
    answer(monitor, high=50)
    assert not monitor.close_window().inverted


@pytest.mark.parametrize(("module", "high", "low"), [("dvp", 40, 5), ("ivp", 40, 10), ("cascade", 20, 5)])
def test_corrections_end_at_the_limit(module: str, high: float, low: float) -> None:
    monitor = watch(module, limit=2)
    for _ in range(60):
        answer(monitor, high=100, low=50)
        monitor.close_window()
    assert (monitor.frequency("high"), monitor.frequency("low")) == (high, low)


def test_corrections_are_reverted_after_a_time_without_inversions() -> None:
    monitor = InversionMonitor(StepwiseRecovery(), 4, calm=2)
    monitor.assign({"high": 20, "low": 10})
    for _ in range(3):
        answer(monitor, high=100, low=50)
        monitor.close_window()
    seen = []
    for _ in range(6):
        answer(monitor, high=50, low=100)
        monitor.close_window()
        seen.append(monitor.frequency("low"))
    assert seen == [7, 7, 8, 9, 10, 10]


def test_new_priorities_reset_corrections() -> None:
    monitor = watch()
    answer(monitor, high=100, low=50)
    monitor.close_window()
    monitor.assign({"high": 20, "low": 10})
    assert monitor.frequency("low") == 9.5
    monitor.assign({"high": 20, "low": 10, "new": 5})
    assert monitor.frequency("low") == 10


# Convergence, in a model in which a class waits in inverse proportion to its share


def light_first(frequencies: Sequence[float]) -> list[float]:
    """Classes of which the important ones need more than their share."""
    work = (40, 20, 12, 9, 6)
    return [10 * need * sum(frequencies) / one for need, one in zip(work, frequencies, strict=True)]


def waits_anyway(frequencies: Sequence[float]) -> list[float]:
    """Class 1 waits for input that no share makes up for, as in the LowInput experiment."""
    work, wait = (5, 10, 12, 12, 10), (3000, 0, 0, 0, 0)
    shares = [one / sum(frequencies) for one in frequencies]
    return [base + 100 * need / share for base, need, share in zip(wait, work, shares, strict=True)]


def last_inversion(
    module: str, priorities: Sequence[int], model: Callable[[Sequence[float]], list[float]]
) -> tuple[int, list[float]]:
    """Return the last of 200 windows with an inversion, and the response times at the end."""
    monitor = InversionMonitor(MODULES[module](), limit=10, calm=5)
    names = [f"class {index}" for index in range(1, len(priorities) + 1)]
    monitor.assign(dict(zip(names, priorities, strict=True)))
    last = 0
    for window in range(1, 201):
        for name, response in zip(names, model([monitor.frequency(name) for name in names]), strict=True):
            monitor.record(name, Report(1, 1, 1, 1, int(response)))
        if monitor.close_window().inverted:
            last = window
    return last, model([monitor.frequency(name) for name in names])


@pytest.mark.parametrize(
    ("module", "light", "waiting"),
    [
        ("none", 200, 200),
        ("dvp", 17, 8),
        ("ivp", 50, 19),
        ("dsp", 15, 17),
        ("isp", 40, 19),
        ("cascade", 15, 7),
    ],
)
def test_with_large_priorities_all_five_modules_converge(module: str, light: int, waiting: int) -> None:
    assert last_inversion(module, FIVE, light_first)[0] == light
    assert last_inversion(module, FIVE, waits_anyway)[0] == waiting


@pytest.mark.parametrize(
    ("module", "rests"), [("dvp", False), ("ivp", True), ("dsp", True), ("isp", True), ("cascade", True)]
)
def test_with_small_priorities_dvp_oscillates(module: str, rests: bool) -> None:
    # (8, 4, 3, 2, 1) and (8, 5, 3, 2, 1) follow each other: a step of one is too coarse there.
    last, _ = last_inversion(module, (5, 4, 3, 2, 1), light_first)
    assert (last < 20) is rests


def test_dsp_pays_for_its_speed_with_the_lowest_class() -> None:
    lowest = {module: last_inversion(module, FIVE, waits_anyway)[1][-1] for module in ("dsp", "cascade")}
    assert lowest["dsp"] > 4 * lowest["cascade"]
