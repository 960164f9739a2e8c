"""Simulated operators, queries, sources and streams."""
