"""Scheduling decisions, pure: policies, the view they decide on, statistics."""

from mavstream_server.scheduling import policies as policies  # registers them
