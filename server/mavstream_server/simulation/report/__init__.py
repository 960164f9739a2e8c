"""Metrics of a run, and how they are shown."""
