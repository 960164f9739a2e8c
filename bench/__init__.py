"""Benchmarks: one command each, answers checked before a time is reported."""
