"""Differential tests: random streams and plans, answered by the engine and by DuckDB."""
