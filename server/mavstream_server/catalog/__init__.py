"""The catalog: streams, classes, queries and producers that survive a restart."""
