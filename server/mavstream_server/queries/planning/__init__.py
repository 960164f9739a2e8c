"""Planning of queries: reads, validates and types their specifications, large ones in another process."""
