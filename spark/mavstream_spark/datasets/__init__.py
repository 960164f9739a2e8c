"""Datasets on any storage that Spark reaches: written in order, published atomically, read and verified."""
