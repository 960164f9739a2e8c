"""Route of the available scheduling policies."""

from __future__ import annotations

import inspect
from typing import Any

from fastapi import APIRouter, Depends

from mavstream_protocol.wire.resources import Page, PolicyInfo
from mavstream_server.api.auth import require
from mavstream_server.api.paging import PageQuery, page_of
from mavstream_server.api.problems import documented
from mavstream_server.scheduling.policy import Policy
from mavstream_server.scheduling.registry import POLICIES

router = APIRouter(prefix="/v1/policies", tags=["scheduling"], dependencies=[Depends(require())])


@router.get("", responses=documented())
async def list_policies(page: PageQuery) -> Page[PolicyInfo]:
    """List the scheduling policies with their purpose and their options."""
    return page_of([describe(POLICIES[name]) for name in sorted(POLICIES)], page, key=lambda one: one.name)


def describe(policy: type[Policy[Any]]) -> PolicyInfo:
    """Return the description of a policy."""
    return PolicyInfo(
        name=policy.name,
        description=inspect.getdoc(policy) or "",
        optimises=policy.optimises,
        options=policy.Options.model_json_schema(),
    )
