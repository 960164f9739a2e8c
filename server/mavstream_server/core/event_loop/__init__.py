"""The event loop of a process: what is important goes first, what blocks is done outside of it."""
