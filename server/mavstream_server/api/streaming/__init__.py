"""Responses that do not end until the query does: results as server-sent events, JSON lines and CSV."""
