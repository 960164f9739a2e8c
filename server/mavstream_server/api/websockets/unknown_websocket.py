"""Websockets to unknown paths: closed with a reason, where the framework would answer a bare 403."""

from __future__ import annotations

from fastapi import APIRouter, WebSocket

from mavstream_protocol.wire.feed import CloseCode
from mavstream_server.ingest.messages import cut_reason

router = APIRouter()


@router.websocket("/{path:path}")
async def unknown_websocket(websocket: WebSocket) -> None:
    """Close any websocket with a reason; the last of all routes.

    Not a 404 at the handshake: browsers hide it from scripts, and uvicorn logs it as an error.
    """
    await websocket.accept()
    reason = f"there are /v1/feed and /v1/queries/ID/results, and no websocket at {websocket.url.path}"
    await websocket.close(CloseCode.UNKNOWN, cut_reason(reason))
