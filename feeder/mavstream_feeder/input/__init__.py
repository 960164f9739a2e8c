"""Rows to feed: files, datasets and sample data, read in batches."""
