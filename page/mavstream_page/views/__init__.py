"""The views, one per address."""
