"""The offline check of a data directory: finds damage in all files, and repairs what can be repaired."""
