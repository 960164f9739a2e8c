"""Results of a run: metrics, tables and pictures."""
