"""Views of the optimizer and its decisions for the API."""

from __future__ import annotations

from collections import Counter

from mavstream_protocol.optimizer import TargetState
from mavstream_protocol.wire.optimizer import DecisionInfo, OptimizerInfo, RuleInfo
from mavstream_protocol.wire.resources import Page
from mavstream_server.core.errors import Refused
from mavstream_server.optimizer.journal import Decision
from mavstream_server.optimizer.monitor import by_class
from mavstream_server.optimizer.service import OptimizerService


def optimizer_info(optimizing: OptimizerService) -> OptimizerInfo:
    """Return the state of the optimizer."""
    optimizer, enactor = optimizing.optimizer, optimizing.enactor
    trial = optimizer.on_probation
    return OptimizerInfo(
        settings=optimizing.settings,
        rules=tuple(
            RuleInfo(name=rule.name, about=rule.about, enabled=rule.name not in optimizer.disabled)
            for rule in optimizer.rules
        ),
        policy=optimizing.scheduler.policy,
        probation=None if trial is None else decision_info(optimizing, trial),
        shed=dict(enactor.shares),
        weights=dict(enactor.weights),
        targets=_targets(optimizing),
        decisions=optimizer.journal.made,
    )


def _targets(optimizing: OptimizerService) -> dict[str, dict[str, int]]:
    found = {}
    for name, queries in by_class(optimizing.monitor.queries).items():
        states = Counter(one.state for watched in queries for one in watched.statuses.values())
        if states:
            found[name] = {state.value: states[state] for state in TargetState}
    return found


def decisions_page(
    optimizing: OptimizerService, after: str | None, limit: int, query: str | None
) -> Page[DecisionInfo]:
    """Return a page of decisions, newest first; `after` is the last number of the previous page."""
    if after is not None and not (after.isascii() and after.isdecimal()):
        raise Refused(
            f"'after={after[:40]}' is not the number of a decision; pass `next` of the previous page",
            code="invalid_after",
        )
    journal = optimizing.optimizer.journal
    found = list(journal) if query is None else journal.of(query)
    if after is not None:
        found = [decision for decision in found if decision.number < int(after)]
    part = found[::-1][:limit]
    return Page[DecisionInfo](
        items=[decision_info(optimizing, decision) for decision in part],
        next=str(part[-1].number) if len(found) > limit else None,
    )


def decision_info(optimizing: OptimizerService, decision: Decision) -> DecisionInfo:
    """Return a decision in its API form."""
    proposal, ended = decision.proposal, decision.ended
    return DecisionInfo(
        number=decision.number,
        at=optimizing.instant(decision.at),
        rule=proposal.rule,
        what=proposal.what,
        why=proposal.why,
        queries=proposal.queries,
        before=decision.before,
        after=decision.after,
        outcome=decision.outcome,
        ended=None if ended is None else optimizing.instant(ended),
        note=decision.note,
    )
