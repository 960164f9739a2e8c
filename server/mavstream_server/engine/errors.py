"""Errors of commands to an engine."""

from __future__ import annotations

from mavstream_protocol.errors import MavstreamError


class UnknownObject(MavstreamError):
    """A query, stream or table that this engine does not have."""

    code = "unknown_object"


class ObjectInUse(MavstreamError):
    """A query that is running already, or a stream that queries read."""

    code = "object_in_use"
