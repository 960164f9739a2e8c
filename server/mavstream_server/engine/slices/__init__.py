"""Slices: running what the policy decides, its times, and traces of it."""
