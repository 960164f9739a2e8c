"""The state of aggregates: accumulators, groups, and the groups of open windows."""
