"""Sharing: queries with equal prefixes run them once."""
