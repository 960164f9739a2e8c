"""Websockets to addresses that have none: closed with words, where the framework would answer a bare 403."""

from __future__ import annotations

from fastapi import APIRouter, WebSocket

from mavstream_protocol.wire.feed import CloseCode
from mavstream_server.ingest.producer_session import cut_reason

router = APIRouter()


@router.websocket("/{path:path}")
async def nowhere(websocket: WebSocket) -> None:
    """Close any websocket; this route stands behind all others.

    Not a 404 at the handshake: browsers do not show it to their programs, and uvicorn logs it as a fault.
    """
    await websocket.accept()
    reason = f"there are /v1/feed and /v1/queries/ID/results, and no websocket at {websocket.url.path}"
    await websocket.close(CloseCode.UNKNOWN, cut_reason(reason))
