"""The optimizer's rules and the order in which they are tried."""

from __future__ import annotations

from mavstream_server.optimizer.rule import OptimizerRule
from mavstream_server.optimizer.rules.backend import MoveRule
from mavstream_server.optimizer.rules.plan import AlternatePlanRule
from mavstream_server.optimizer.rules.policy import SwitchPolicyRule
from mavstream_server.optimizer.rules.rank import RankRule
from mavstream_server.optimizer.rules.shedding import ShedRule


def all_rules() -> list[OptimizerRule]:
    """Return all rules, the least intrusive first: shedding, which loses rows, is last."""
    return [SwitchPolicyRule(), RankRule(), AlternatePlanRule(), MoveRule(), ShedRule()]
