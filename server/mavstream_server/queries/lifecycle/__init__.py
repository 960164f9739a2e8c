"""Life cycle of queries: registration, beginning, placement, changes, replacement and end."""
