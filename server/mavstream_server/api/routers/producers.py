"""Routes of producers: who feeds the streams, and the removal of names that are no longer used."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path

from mavstream_protocol.names import Name
from mavstream_protocol.tokens import Role
from mavstream_protocol.wire.resources import Page, ProducerInfo
from mavstream_server.api.auth import require
from mavstream_server.api.paging import PageQuery, cut
from mavstream_server.api.problems import documented
from mavstream_server.api.services import Parts
from mavstream_server.core.principal import Principal

router = APIRouter(prefix="/v1/producers", tags=["streams"])

ProducerPath = Annotated[Name, Path(description="Name of the producer")]


@router.get("", dependencies=[Depends(require())], responses=documented())
async def list_producers(parts: Parts, page: PageQuery) -> Page[ProducerInfo]:
    """List the producers, ordered by name: their owners, last sequences, and when they were last used."""
    known = sorted(name for name in parts.catalog.producers.names if page.after is None or name > page.after)
    return cut(parts.producer_upkeep.infos(known[: page.limit + 1]), page, key=lambda one: one.name)


@router.delete("/{name}", status_code=204, responses=documented(404, 409))
async def remove_producer(
    name: ProducerPath, parts: Parts, who: Annotated[Principal, Depends(require(Role.FEEDER))]
) -> None:
    """Remove a producer. Its rows stay; a producer of that name starts anew with sequence 1.

    Refused while it is connected. Only for its owner and administrators.
    """
    parts.catalog.producers.check(name, who)
    parts.producer_upkeep.remove(name)
