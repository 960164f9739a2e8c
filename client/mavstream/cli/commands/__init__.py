"""The sub-commands, a module each."""
