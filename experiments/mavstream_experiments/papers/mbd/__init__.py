"""Chapter 6 of Al Moakar's dissertation: the multicore broadcast disk (MBD), its modules and baselines."""

PAPER = "MBD (SimAQSIOS)"
