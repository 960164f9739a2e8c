"""The engine process: host, control channel, doorbells, commands."""
