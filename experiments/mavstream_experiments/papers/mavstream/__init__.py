"""Pajjuri 2004: the MavStream thesis, chapter 6."""

PAPER = "MavStream"
