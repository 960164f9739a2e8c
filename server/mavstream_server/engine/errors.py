"""Problems: what is asked of an engine that it cannot do."""

from __future__ import annotations

from mavstream_protocol.errors import MavstreamError


class UnknownObject(MavstreamError):
    """A query, stream or table that this engine does not have."""

    code = "unknown_object"


class ObjectInUse(MavstreamError):
    """A query that runs already, or a stream that queries read."""

    code = "object_in_use"
