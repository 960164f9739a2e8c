"""Writing of plans as SQL."""

from __future__ import annotations

from mavstream_protocol.sql.writer.plans import plan_to_sql

__all__ = ["plan_to_sql"]
