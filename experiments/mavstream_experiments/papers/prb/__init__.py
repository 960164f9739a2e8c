"""Sharaf, Chrysanthis and Labrinidis: preemptive rate-based operator scheduling (PRB)."""

PAPER = "PRB"
