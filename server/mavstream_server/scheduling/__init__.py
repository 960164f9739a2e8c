"""Scheduling policies, the view they decide on, and operator statistics: pure decisions, no I/O."""

from mavstream_server.scheduling import policies as policies  # registers them
