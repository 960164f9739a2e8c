"""Errors of httpx and websockets, translated into errors of the SDK."""

from __future__ import annotations

import re

import httpx
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus

from mavstream._errors import (
    ConnectFailed,
    ConnectionLost,
    ProblemError,
    Timeout,
    TransportError,
    answer_error,
)
from mavstream._transport.address import Address

_ERRNO = re.compile(r"^\[Errno -?\d+\] ")


def request_error(error: httpx.RequestError, address: Address) -> TransportError:
    """Return the error for a request without an answer."""
    match error:
        case httpx.ConnectTimeout() | httpx.ConnectError() | httpx.PoolTimeout():
            return ConnectFailed(_unreachable(address, error))
        case httpx.TimeoutException():
            return Timeout(f"{address.url} did not answer within {address.timeout:g} s")
        case _:
            return ConnectionLost(f"the connection to {address.url} broke: {error or type(error).__name__}")


def open_error(error: Exception, address: Address) -> TransportError | ProblemError:
    """Return the error for a websocket that could not be opened."""
    match error:
        case InvalidStatus():
            return answer_error(error.response.status_code, bytes(error.response.body or b""))
        case InvalidMessage() | EOFError():
            return ConnectionLost(f"the connection to {address.url} broke while it was being opened")
        case InvalidHandshake():
            return ConnectFailed(f"{address.url} does not speak websocket: {error}")
        case TimeoutError():
            return ConnectFailed(f"{address.url} did not open a websocket within {address.timeout:g} s")
        case _:
            return ConnectFailed(_unreachable(address, error))


def close_error(error: ConnectionClosed, address: Address) -> ConnectionLost:
    """Return the error for a websocket that was closed."""
    if error.rcvd is None:
        return ConnectionLost(f"the connection to {address.url} broke")
    reason = error.rcvd.reason or f"the server closed the connection with code {error.rcvd.code}"
    return ConnectionLost(reason, error.rcvd.code)


def _unreachable(address: Address, error: Exception) -> str:
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return (
        f"cannot reach {address.url} ({_ERRNO.sub('', reason)}): start a server with "
        "'mavstream serve', or name another with --url or MAVSTREAM_URL"
    )
