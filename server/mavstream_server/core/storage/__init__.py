"""Data on disk: the directory and its format, restarts of the machine, damage, and failpoints for tests."""
