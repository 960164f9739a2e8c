"""Chaos: kills the processes of a real server at random moments, and checks every answer afterwards."""
