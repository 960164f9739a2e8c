"""Queries that runners of other backends run: their results are published here, batch by batch."""
