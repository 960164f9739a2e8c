"""ABD: the broadcast-disk schedule, the quota slice, and the correction of inversions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from mavstream_server.scheduling.mechanisms.broadcast_disk import BroadcastDisk, SlotHolder, next_slot
from mavstream_server.scheduling.mechanisms.quota_slice import QuotaSlice, TurnCosts
from mavstream_server.scheduling.registry import InvalidPolicy
from mavstream_server.scheduling.view import Slice
from mavstream_server.testing import ScriptedNetwork, Step

STEADY = {"quota_us": 50, "least_us": 50, "most_us": 50}


def disk(priorities: Sequence[int]) -> BroadcastDisk[int]:
    made: BroadcastDisk[int] = BroadcastDisk()
    for item, priority in enumerate(priorities):
        made.wake(SlotHolder(item, priority, item))
    return made


def taken(made: BroadcastDisk[int], slots: int) -> list[int]:
    found = []
    for _ in range(slots):
        holder = made.take()
        assert holder is not None
        found.append(holder.item)
        made.wake(holder)
    return found


def written_out(priorities: Sequence[int]) -> list[int]:
    """Algorithm 2, read as: for slots 1 to 2^mp - 1, bit b where the slot has mp - 1 - b trailing zeros."""
    bits = max(priorities).bit_length()
    schedule = []
    for slot in range(1, 2**bits):
        zeros = (slot & -slot).bit_length() - 1
        schedule += [item for item, one in enumerate(priorities) if one >> (bits - 1 - zeros) & 1]
    return schedule


# The schedule


def test_the_schedule_of_figure_8() -> None:
    order = "".join("ABCDE"[item] for item in taken(disk([5, 4, 3, 2, 1]), 30))
    assert order == "ABCDABACEABCDAB" * 2
    waits = [len(gap) for gap in order.strip("A").split("A")]
    assert max(waits) == 3  # so A waits for three slices and runs in the fourth


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_written_out_schedule_for_any_priorities(seed: int) -> None:
    random = Random(seed)
    priorities = [random.randint(1, 2 ** random.randint(1, 7)) for _ in range(random.randint(1, 8))]
    schedule = written_out(priorities)
    assert Counter(schedule) == Counter(dict(enumerate(priorities)))
    assert taken(disk(priorities), 3 * len(schedule)) == 3 * schedule


def test_slots_of_classes_without_work_are_skipped_at_once() -> None:
    made: BroadcastDisk[str] = BroadcastDisk()
    often, seldom = SlotHolder("often", 2**39, 0), SlotHolder("seldom", 1, 1)
    made.wake(seldom)
    for _ in range(3):  # there would be 2^39 slots in between
        assert made.take() is seldom
        made.wake(seldom)
    made.wake(often)
    assert made.take() is often


def test_a_new_priority_counts_at_once_and_no_class_loses_its_slot() -> None:
    made: BroadcastDisk[int] = BroadcastDisk()
    first, second = SlotHolder(0, 1, 0), SlotHolder(1, 1, 1)
    made.wake(first)
    made.wake(second)
    assert taken(made, 1) == [0]
    made.change(second, 4, 1)
    # Both had the middle of the round. The second has two more of its four slots in this one; in the next,
    # as in all that follow, the first has its own between them.
    assert taken(made, 7) == [1, 1, 1, 1, 0, 1, 1]


def test_the_next_slot_is_the_first_one_after_the_current() -> None:
    for priority in (1, 2, 3, 5, 6, 2**20 + 1):
        slots = [next_slot(priority, -1)]
        for _ in range(50):
            slots.append(next_slot(priority, slots[-1]))
        middle = (slots[10] + slots[11]) // 2
        assert slots == sorted(set(slots))
        assert next_slot(priority, middle) == slots[11]
        assert next_slot(priority, slots[11] - 1) == slots[11]


# The quota slice


def test_the_quota_slice_grows_by_the_missing_time_and_shrinks_by_the_same() -> None:
    quota = QuotaSlice(50, least=20, most=500)
    quota.lengthen(30)
    quota.round_over()
    assert quota.length == 80  # it has grown in this round
    quota.round_over()
    assert quota.length == 50  # it has not: the flag was reset
    quota.round_over()
    assert quota.length == 20
    quota.round_over()
    assert quota.length == 20  # not above the last growth


def test_the_quota_slice_stays_within_its_bounds() -> None:
    quota = QuotaSlice(50, least=40, most=100)
    quota.lengthen(1_000_000)
    assert quota.length == 100
    quota.lengthen(1_000_000)
    for _ in range(2):
        quota.round_over()
    assert quota.length == 50  # it shrinks by the 50 that it could grow
    quota.lengthen(30)
    for _ in range(4):
        quota.round_over()
    assert quota.length == 40


def test_a_quota_slice_outside_its_bounds_is_refused() -> None:
    with pytest.raises(InvalidPolicy, match="must lie between least_us"):
        ScriptedNetwork("abd", {"quota_us": 10, "least_us": 20})


def test_the_longest_turns_are_those_of_the_class_with_the_highest_mean() -> None:
    costs = TurnCosts()
    assert costs.longest == 0
    for _ in range(50):
        costs.record("A", 100)
        costs.record("B", 700)
    assert costs.longest == pytest.approx(700)
    assert costs.short("A")
    assert not costs.short("B")
    for _ in range(50):
        costs.record("B", 300)
    assert costs.longest == pytest.approx(300, rel=0.01)
    costs.keep({"A"})
    assert costs.longest == pytest.approx(100)


# The policy


def flooded(priorities: dict[str, int], options: dict[str, object], cost: float = 100) -> ScriptedNetwork:
    """Overloaded classes with one query each, of one operator that gives no answers."""
    network = ScriptedNetwork("abd", options)
    network.priorities.update(priorities)
    for name in priorities:
        network.add(name, [Step("select", 0.0, cost)], name)
        network.arrive(name, 10_000_000)
    return network


def owners(network: ScriptedNetwork, slices: int) -> str:
    found = [network.step() for _ in range(slices)]
    return "".join(slice_.operators[0].query.class_name for slice_ in found if slice_ is not None)


def test_classes_run_in_the_slots_of_their_priorities() -> None:
    network = flooded({"A": 5, "B": 4, "C": 3, "D": 2, "E": 1}, STEADY)
    assert owners(network, 30) == "ABCDABACEABCDAB" * 2


def test_time_is_shared_by_priority() -> None:
    network = flooded({"A": 6, "B": 3, "C": 1}, {"most_us": 2000})
    for _ in range(600):
        network.step()
    total = sum(network.busy.values())
    for name, share in (("A", 0.6), ("B", 0.3), ("C", 0.1)):
        assert network.busy[name] / total == pytest.approx(share, rel=0.01)


def test_a_slice_ends_with_the_quota_slice_or_with_its_own_bound() -> None:
    inner = {"policy": "rr", "options": {"quantum_us": 30}}
    network = flooded({"A": 1}, {**STEADY, "inner": inner})
    slices = [network.step() for _ in range(4)]
    # 30 us of 50, then the remaining 20 us, and again.
    assert [slice_.duration for slice_ in slices if slice_] == [30_000, 20_000, 30_000, 20_000]


def test_a_class_without_work_gives_up_its_slot() -> None:
    network = ScriptedNetwork("abd", STEADY)
    network.priorities.update({"A": 3, "B": 1})
    for name in "AB":
        network.add(name, [Step("select", 0.0)], name)
    network.arrive("A", 10)
    network.arrive("B", 10)
    assert owners(network, 5) == "AB"
    network.arrive("A", 1000)  # two quota slices, while B has nothing
    assert owners(network, 5) == "AA"


def test_the_quota_slice_adapts_to_the_work() -> None:
    # Each time 400 tuples of 1 us arrive; the slice of 50 us grows by what is missing to finish them.
    network = ScriptedNetwork("abd", {"most_us": 10_000})
    network.add("a", [Step("select", 0.0, 1000)])
    durations = []
    for _ in range(3):
        network.arrive("a", 400)
        durations.append([slice_.duration for slice_ in network.run()])
    assert durations[0] == [50_000, 400_000]  # 50 are done, and 350 us were missing
    assert durations[1] == [50_000, 400_000]  # a round without need: it shrinks by 350
    assert len(durations[2]) == 2


def test_a_remainder_too_small_for_a_tuple_ends_the_slot() -> None:
    network = flooded({"A": 1, "B": 1}, STEADY, cost=30_000)
    # A tuple takes 30 of the 50 us; the remaining 20 are too short for another.
    assert owners(network, 4) == "ABAB"


def late(network: ScriptedNetwork, rounds: int, victim: str, violator: str) -> None:
    """Let the victim's tuple wait for a millisecond, and the violator's for nothing, in every round."""
    for _ in range(rounds):
        network.arrive(victim, 1)
        network.now += 1_000_000
        network.arrive(violator, 1)
        network.run()


def corrected(rounds: int, **options: object) -> ScriptedNetwork:
    """Return two classes of priorities 4 and 3, the second of which answered first in `rounds` rounds."""
    network = ScriptedNetwork("abd", {**STEADY, **options})
    network.priorities.update({"A": 4, "B": 3})
    for name in "AB":
        network.add(name, [Step("select", 1.0)], name)
        network.add(f"silent {name}", [Step("select", 0.0)], name)
    late(network, rounds, "A", "B")
    return network


def slots(network: ScriptedNetwork) -> float:
    """Return how many slots A has for each slot of B while both are overloaded."""
    for name in "AB":
        network.arrive(f"silent {name}", 10_000_000)
    found = Counter(owners(network, 1000))
    return found["A"] / found["B"]


def test_a_class_that_answers_before_a_more_important_one_loses_slots() -> None:
    assert slots(corrected(rounds=0)) == pytest.approx(4 / 3, rel=0.01)
    assert slots(corrected(rounds=1, calm=1000)) == pytest.approx(4 / 2, rel=0.01)


def test_corrections_stay_within_the_limit() -> None:
    assert slots(corrected(rounds=100, calm=1000, limit=2)) == pytest.approx(8 / 2, rel=0.01)


def test_corrections_are_reverted_without_further_inversions() -> None:
    network = corrected(rounds=100, calm=3, limit=2)
    late(network, 60, "B", "A")  # now the less important one waits, as it should
    assert slots(network) == pytest.approx(4 / 3, rel=0.01)


# Changes while it runs


def test_a_priority_counts_from_the_next_round_on() -> None:
    network = flooded({"A": 2, "B": 1}, STEADY)
    assert owners(network, 4) == "ABAA"
    network.set_priority("B", 4)
    assert owners(network, 2) == "BA"  # the current round is not changed
    assert Counter(owners(network, 6)) == {"A": 2, "B": 4}


def test_a_query_that_changes_its_class_gets_turns_of_its_new_class() -> None:
    network = flooded({"A": 3, "B": 1}, STEADY)
    network.add("second", [Step("select", 0.0)], "B")
    network.arrive("second", 10_000_000)
    owners(network, 6)
    network.reclass("second", "A")
    owners(network, 4)
    found = [network.step() for _ in range(40)]
    ids = Counter(slice_.operators[0].query.id for slice_ in found if slice_)
    assert ids == {"A": 15, "second": 15, "B": 10}


def test_a_class_that_is_added_within_a_round_runs_in_it() -> None:
    network = flooded({"A": 5, "B": 5}, STEADY)
    owners(network, 1)
    network.priorities["C"] = 5
    network.add("C", [Step("select", 0.0)], "C")
    network.arrive("C", 1000)
    assert "C" in owners(network, 4)


# Several cores


def test_cores_have_slots_of_their_own_and_share_no_operator() -> None:
    network = flooded({"A": 3, "B": 1}, STEADY)
    for number in range(4):
        network.add(f"more{number}", [Step("select", 0.0)], "A")
        network.arrive(f"more{number}", 10_000_000)
    for turn in range(200):
        begun: list[Slice | None] = [network.begin(core) for core in range(4)]
        assert None not in begun
        for core in ((3, 0, 2, 1), (1, 3, 0, 2))[turn % 2]:
            network.end(core)
    total = sum(network.busy.values())
    assert network.busy["A"] / total == pytest.approx(0.75, rel=0.02)


def test_a_query_that_changes_its_class_while_it_runs_is_not_lost() -> None:
    network = flooded({"A": 3, "B": 1}, STEADY)
    slice_ = network.begin(0)
    assert slice_ is not None
    network.reclass("A", "B")
    network.begin(1)
    network.end(1)
    network.end(0)
    found = [network.step() for _ in range(6)]
    assert {one.operators[0].query.id for one in found if one} == {"A", "B"}
