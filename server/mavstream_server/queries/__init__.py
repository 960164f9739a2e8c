"""Registered queries: validation, registry, placement on an engine, views and QoS reports."""
