"""Building query plans."""
