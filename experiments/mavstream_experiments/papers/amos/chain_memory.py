"""Chain: no other policy needs less memory for queues."""

from __future__ import annotations

from typing import Any

from mavstream_experiments.bands import at_most
from mavstream_experiments.model import Cell, Claim, Experiment, Table, Value
from mavstream_experiments.papers.amos import PAPER
from mavstream_experiments.papers.amos.choices import LABELS, PLAN_1, PLAN_2
from mavstream_experiments.pictures_model import Bars
from mavstream_experiments.registry import register

_CHAIN = "chain"
_ONE: dict[str, Any] = {"tuples": 1}
_OPTIONS: dict[str, dict[str, Any]] = {
    _CHAIN: _ONE,
    "mtiq": _ONE,
    "fifo": _ONE,
    "rr": _ONE,
    "hr": _ONE,
    "segment": {"quantum_us": 1},  # one tuple at the first operator
}
_PLANS = {PLAN_1: "plan 1", PLAN_2: "plan 2"}
_MEMORY = "memory.mean"


def _excess(plan: str) -> Value:
    def percent(table: Table) -> float:
        least = min(table[f"{one} {plan}"][_MEMORY] for one in _OPTIONS)
        return 100 * (table[f"{_CHAIN} {plan}"][_MEMORY] / least - 1)

    return percent


def _bar(plan: str, policy: str) -> Value:
    return lambda table: table[f"{policy} {plan}"][_MEMORY] / 1000


register(
    Experiment(
        name="chain-memory",
        paper=PAPER,
        title="Memory in queues without context switch costs",
        about="Mean bytes in all queues under Chain and five other policies, one tuple per turn.",
        calibration="Plans and rates as for figures 2 and 5 to 9 (fitted); context switches cost nothing, "
        "and each turn is one tuple, as in Chain's proof. Queues are sampled every second.",
        cells={
            f"{policy} {plan}": Cell(plan, policy, options, settings={"parameters": {"switch": 0}})
            for plan in _PLANS
            for policy, options in _OPTIONS.items()
        },
        claims=tuple(
            Claim(
                f"Chain needs no more memory than the best policy ({label}, excess over the least)",
                "excels in keeping the total queue size to a minimum (2.1)",
                _excess(plan),
                holds=at_most(1),
                partly=at_most(5),
                unit="%",
                required=True,
                no_effect=True,
            )
            for plan, label in _PLANS.items()
        ),
        picture=Bars(
            "mean memory, kB",
            {
                label: {
                    LABELS.get(policy, policy.replace("hr", "HR")): _bar(plan, policy) for policy in _OPTIONS
                }
                for plan, label in _PLANS.items()
            },
        ),
    )
)
