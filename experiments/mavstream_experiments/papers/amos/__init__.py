"""Sutherland et al.: AMoS, the adaptive choice between scheduling policies in CAPE."""

PAPER = "AMoS (CAPE)"
