"""The rules of the optimizer, one in each module, and the order in which they are tried."""

from __future__ import annotations

from mavstream_server.optimizer.rule import OptimizerRule
from mavstream_server.optimizer.rules.plan import AlternatePlanRule
from mavstream_server.optimizer.rules.policy import SwitchPolicyRule
from mavstream_server.optimizer.rules.rank import RankRule
from mavstream_server.optimizer.rules.shedding import ShedRule


def all_rules() -> list[OptimizerRule]:
    """Return the rules, the gentlest first: what loses rows comes last."""
    return [SwitchPolicyRule(), RankRule(), AlternatePlanRule(), ShedRule()]
