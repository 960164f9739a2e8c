"""Conversion of what callers pass in to what requests carry."""
