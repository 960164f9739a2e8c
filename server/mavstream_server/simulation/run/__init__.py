"""Execution of a scenario in virtual time under a policy."""
