"""Sharing between queries: prefixes that several queries have in common run once."""
