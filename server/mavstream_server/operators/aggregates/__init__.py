"""The state behind aggregates: accumulators, groups, and groups of windows."""
