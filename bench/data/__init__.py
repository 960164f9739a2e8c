"""Data sources: timing and speed of the feeder, and of data generation with Spark."""
