"""The simulator: its speed, and its agreement with the live engine."""
