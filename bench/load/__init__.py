"""Server processes and load generators that benchmarks have in common."""
