"""Trials: a query runs once on the last rows of its streams, in a process of its own."""
