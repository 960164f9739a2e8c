"""Definitions that every package may import: clock, metric models, errors, settings."""
