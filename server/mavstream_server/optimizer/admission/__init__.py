"""Admission: estimates of load and latency for queries that are not running yet."""
