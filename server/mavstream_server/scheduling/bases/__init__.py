"""Base classes of scheduling policies."""
