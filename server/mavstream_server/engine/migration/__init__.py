"""Migration of a running query to an equivalent plan."""
