"""The engine process: its main loop, control channel, commands, doorbells and result logs."""
