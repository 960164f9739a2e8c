"""Workload files: their model, loading, and expansion into scenarios."""
