"""Stored tables as files: a directory per table, a file per version, and how others learn of new ones."""
