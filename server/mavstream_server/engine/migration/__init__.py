"""Migration of a running query to another plan."""
