"""Rows and queries that benchmarks have in common."""
