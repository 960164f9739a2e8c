"""Admission control estimates: expected load and latency of queries that do not run yet."""
