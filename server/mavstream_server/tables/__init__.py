"""Stored tables: a directory per table, a file per version, indexes and retention."""
