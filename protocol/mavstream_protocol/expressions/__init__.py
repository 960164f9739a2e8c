"""Expressions: SQL text, parsed and type-checked once, the same for every backend."""
