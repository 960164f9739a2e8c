"""Workload files: model, loading, expansion into scenarios, and export from a running server."""
