"""The attacks, one module each; every one returns its findings."""
