"""Execution of a scenario under a policy in virtual time."""
