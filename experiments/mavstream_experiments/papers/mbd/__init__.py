"""Chapter 6 of Al Moakar's dissertation: multicore broadcast disk (MBD), its modules and its baselines."""

PAPER = "MBD (SimAQSIOS)"
