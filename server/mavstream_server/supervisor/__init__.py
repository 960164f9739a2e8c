"""Starts, supervises and talks to the engine process."""
