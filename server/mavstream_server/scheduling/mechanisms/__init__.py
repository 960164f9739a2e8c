"""Mechanisms that scheduling policies are built from."""
