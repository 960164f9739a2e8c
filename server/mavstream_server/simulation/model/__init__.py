"""Simulated streams, sources, operators and queries, and the network that connects them."""
