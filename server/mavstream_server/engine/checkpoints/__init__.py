"""Checkpoints: durable snapshots of running queries, and recovery from them without lost or repeated rows."""
