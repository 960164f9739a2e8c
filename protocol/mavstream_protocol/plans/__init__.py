"""Plans: the plan object, its graph and windows, and the inference of its types."""
