"""Scheduling decisions, pure: policies, the view they decide on, statistics."""
