"""Columnar data inside a process: columns, dictionaries, batches, and codes for keys."""
