"""Sutherland et al.: AMoS, the adaptive choice between policies in CAPE, and the policies it chooses from."""

PAPER = "AMoS (CAPE)"
