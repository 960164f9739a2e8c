"""Pajjuri 2004: chapter 6 of the MavStream thesis."""

PAPER = "MavStream"
