"""The scheduler: which policy decides now, with which options."""

from __future__ import annotations

from random import Random

from fastapi import APIRouter, Depends

from mavstream_protocol.wire.resources import SchedulerSettings
from mavstream_server.api.auth import require
from mavstream_server.api.problems import documented
from mavstream_server.api.services import Parts
from mavstream_server.scheduling.registry import make_policy
from mavstream_server.scheduling.view import QueryView
from mavstream_server.service.settings import Role, Settings

router = APIRouter(prefix="/v1/scheduler", tags=["scheduling"])


@router.get("", dependencies=[Depends(require())], responses=documented())
async def show_scheduler(parts: Parts) -> SchedulerSettings:
    """Show the policy that decides, and its options."""
    return current(parts.catalog.scheduler(), parts.settings)


@router.put("", dependencies=[Depends(require(Role.ADMIN))], responses=documented(409))
async def set_scheduler(chosen: SchedulerSettings, parts: Parts) -> SchedulerSettings:
    """Let another policy decide, at once; tuples in flight stay where they are."""
    make_policy(chosen.policy, _Nothing(), chosen.options)
    await parts.link.switch_policy(chosen.policy, chosen.options)
    parts.catalog.set_scheduler(chosen.policy, chosen.options)
    return chosen


def current(kept: SchedulerSettings | None, settings: Settings) -> SchedulerSettings:
    """Return what was chosen last, or else what the server was started with."""
    return kept or SchedulerSettings(policy=settings.policy, options=settings.policy_options)


class _Nothing:
    """A view of no queries: enough to see whether a policy takes its options."""

    def __init__(self) -> None:
        self.queries: dict[str, QueryView] = {}
        self.priorities: dict[str, int] = {}
        self.random = Random(0)
